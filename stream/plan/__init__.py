"""Logical plans become trees of executors to be."""
