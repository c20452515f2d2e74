"""DuckDB and Hummock read each other's rows over Arrow, without a copy through Python objects.

    pip install hummock duckdb
    python duckdb_arrow.py

It prints:

    ┌─────────┬────────┬────────────┐
    │  name   │ orders │  revenue   │
    │ varchar │ int64  │   double   │
    ├─────────┼────────┼────────────┤
    │ Asia    │   3334 │ 16668333.0 │
    │ Europe  │   3333 │ 16661667.0 │
    └─────────┴────────┴────────────┘
"""

import duckdb

import stream

duck = duckdb.connect()
generated = duck.sql("SELECT range AS id, range % 3 AS region, range::DOUBLE AS amount FROM range(10_000)")
regions = duck.sql("SELECT * FROM (VALUES (0, 'Asia'), (1, 'Europe')) AS t(region, name)")

with stream.connect("memory://") as db:
    db.create_table("orders", generated.to_arrow_table(), primary_key="id")
    db.sql("""CREATE MATERIALIZED VIEW revenue AS
              SELECT region, COUNT(*) AS orders, SUM(amount) AS revenue FROM orders GROUP BY region""")
    db.flush()
    revenue = db.query("SELECT * FROM revenue")             # DuckDB finds it by the name of the variable
    duck.sql("SELECT name, orders, revenue FROM revenue JOIN regions USING (region) ORDER BY name").show()
