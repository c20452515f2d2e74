"""CREATE, ALTER, DROP and SHOW CREATE, bound to a catalog."""
