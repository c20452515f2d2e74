"""What a user holds: sessions, tables, statements and reads."""
