"""A query at one epoch, evaluated over committed rows."""
