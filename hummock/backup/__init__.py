"""Backups: consistent copies of a store in another object store, and their way back."""
