"""Lookups over one read view: a key, many keys, key prefixes, changes between epochs."""
