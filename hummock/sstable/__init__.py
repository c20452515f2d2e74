"""Sorted string tables: writing and reading blocks, index and filter, and caching them. See FORMAT.md."""
