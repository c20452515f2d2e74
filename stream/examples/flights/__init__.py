"""Example: views over a year of flights, with a connector, a table and a command."""
