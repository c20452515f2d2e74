"""The file of the store, written and read: blocks, index, filter, caches. See FORMAT.md."""
