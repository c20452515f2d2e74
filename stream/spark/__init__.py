"""Bulk backfill: the history of a new view is computed by a Spark job, its executors those of the stream."""
