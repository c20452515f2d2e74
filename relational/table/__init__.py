"""Tables: rows laid out as keys and values, written by one executor, read by all."""
