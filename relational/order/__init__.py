"""Rows in order in memory, and windows of them."""
