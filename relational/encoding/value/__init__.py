"""Values of rows as bytes: lossless, and readable after schema changes."""
