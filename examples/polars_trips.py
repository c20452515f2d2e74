"""Polars frames, lazy ones too, go into a table; Polars reads a view as it reads any Arrow stream.

    pip install 'hummock[polars]'
    python polars_trips.py

It prints:

    shape: (2, 3)
    ┌──────┬───────┬─────────┐
    │ zone ┆ trips ┆ longest │
    │ ---  ┆ ---   ┆ ---     │
    │ str  ┆ i64   ┆ f64     │
    ╞══════╪═══════╪═════════╡
    │ A    ┆ 2     ┆ 7.5     │
    │ B    ┆ 1     ┆ 1.2     │
    └──────┴───────┴─────────┘
    shape: (2, 2)
    ┌──────┬─────────┐
    │ zone ┆ dollars │
    │ ---  ┆ ---     │
    │ str  ┆ f64     │
    ╞══════╪═════════╡
    │ A    ┆ 15.0    │
    │ B    ┆ 2.4     │
    └──────┴─────────┘
"""

import polars as pl

import stream

trips = pl.DataFrame({"id": [1, 2, 3], "zone": ["A", "B", "A"], "miles": [3.1, 1.2, -1.0]})
corrected = trips.lazy().with_columns(miles=pl.when(pl.col("id") == 3).then(7.5).otherwise(pl.col("miles")))

with stream.connect("memory://") as db:
    table = db.create_table("trips", trips.clear(), primary_key="id")       # the columns alone
    table.insert(corrected)
    db.sql("""CREATE MATERIALIZED VIEW by_zone AS
              SELECT zone, COUNT(*) AS trips, MAX(miles) AS longest FROM trips GROUP BY zone""")
    db.flush()
    frame = pl.DataFrame(db.query("SELECT * FROM by_zone ORDER BY zone"))
    print(frame)
    print(frame.select("zone", dollars=pl.col("longest") * 2))
