"""The operators of a change stream, one per file, and their shared code."""
