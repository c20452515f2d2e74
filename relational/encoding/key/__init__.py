"""Memcomparable keys: bytes that order as the rows do."""
