"""Memcomparable keys: bytes whose order is the order of the rows."""
