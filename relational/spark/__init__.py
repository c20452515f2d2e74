"""Tables and Spark: bulk load of DataFrames into a table, and scans and change feeds of tables as DataFrames."""
