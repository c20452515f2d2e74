"""How a new view reads the rows its table already has while changes go on."""
