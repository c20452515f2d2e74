"""Names are given from Python only."""
