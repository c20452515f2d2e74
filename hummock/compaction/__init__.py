"""Compaction: tasks, subcompactions, their inputs and their executors."""
