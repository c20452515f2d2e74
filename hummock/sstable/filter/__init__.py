"""Filters of a file: Bloom filters, their policies, prefix extractors."""
