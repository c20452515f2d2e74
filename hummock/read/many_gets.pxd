"""Reads of many keys in one call, Arrow to Arrow: `read_many`, called from Python."""
