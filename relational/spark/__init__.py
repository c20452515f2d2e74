"""Tables and Spark: rows of DataFrames become files of a table."""
