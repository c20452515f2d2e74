"""Iterators over sorted runs: merge, restrict to a range, read as of an epoch, collect into columns."""
