"""Translates logical plans into stream plans, from which executors are built."""
