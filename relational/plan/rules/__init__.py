"""One rewrite of a logical plan per file; optimizer.py defines the order in which they are applied."""
