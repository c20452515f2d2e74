"""The objects that users hold: sessions, tables, statements and reads."""
