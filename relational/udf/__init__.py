"""User functions: functions in Python over Arrow columns, whose source text the catalog stores."""
