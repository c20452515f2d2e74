"""Writes that are in no version yet: batches, which are readable at once, and their flush into files."""
