"""The whole of an iterator as columns has no compiled face: it is entered once, from Python."""
