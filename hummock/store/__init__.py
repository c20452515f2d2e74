"""The StateStore that a user holds: reads, the write path, backpressure, the pinned version."""
