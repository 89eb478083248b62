"""The five stages, and the chain that joins them: recipe, artifacts and libraries."""
