"""The block cache, and what is admitted to it."""
