"""Transactional key-value stores for metadata, and how their rollback is detected."""
