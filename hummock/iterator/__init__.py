"""Sorted runs of keys, walked as one: merged, bounded, seen as of an epoch, copied into columns."""
