"""Which rows of a chunk share a key: `group_rows`, called once per chunk from Python."""
