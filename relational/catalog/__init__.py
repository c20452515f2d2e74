"""What tables and views there are: their descriptions, and the truth about them in the meta store."""
