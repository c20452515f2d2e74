"""Tables: rows laid out as keys and values, written by one executor, readable by all."""
