"""Batches that are not yet in files: readable at once, then merged and uploaded."""
