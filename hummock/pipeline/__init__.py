"""The merge loop from sorted inputs to uploaded files, shared by flush, compaction and bulk ingest."""
