"""Deletes objects that no version, lease or upload needs."""
