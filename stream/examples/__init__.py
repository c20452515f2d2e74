"""Complete jobs to learn from."""
