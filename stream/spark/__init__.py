"""Bulk backfill: a Spark job computes the history of a new view with the executors of the stream."""
