"""Assignment of compaction tasks, and validation and commit of their results."""
