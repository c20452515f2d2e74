"""Rows as people read them: tables for a terminal of some width, and HTML for notebooks."""
