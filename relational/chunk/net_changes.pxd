"""What a chunk does to each key in the end: `net_changes`, called once per chunk from Python."""
