"""The five stages, the pipeline that builds their artifacts, and their helpers."""
