"""The rows of one input of a join in memory, by join key."""
