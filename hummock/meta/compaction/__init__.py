"""Which compaction tasks run, and how their results become a version."""
