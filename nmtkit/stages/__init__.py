"""The five stages, and the chain that joins them: the only rooms that see recipe, artifacts and libraries together."""
