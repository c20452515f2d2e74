"""The catalog of tables and views: their descriptions, kept in the meta store."""
