"""One rewrite of a logical plan per file; optimizer.py says in which order they are applied."""
