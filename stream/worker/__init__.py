"""Runs actors: builds them from plans, injects barriers, seals and syncs each epoch."""
