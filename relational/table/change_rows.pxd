"""What a change becomes has no compiled face: it is entered once for each batch, from Python."""
