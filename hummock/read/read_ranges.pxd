"""Short ranges have no compiled face: a call reads many of them."""
