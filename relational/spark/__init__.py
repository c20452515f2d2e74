"""Tables and Spark: rows of DataFrames become files of a table, and tables, or what changed in them, DataFrames."""
