"""Checks, repairs and prints the files of a store."""
