"""The rows of a join's side in memory, by join key."""
