"""The five stages, and the chain that joins them.

The only room that sees recipe, artifacts and libraries together.
"""
