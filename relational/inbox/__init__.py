"""The inbox: rows that other processes hand to the session that serves a store, through its meta store."""
