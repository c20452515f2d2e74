"""Spark loads a table and computes the history of a view; from there on this process keeps the view.

    pip install 'hummock[spark]'                            # and Java 17 or later
    python spark_history.py

It prints:

    {'region': 3, 'sales': 14286, 'amount': 7143.0}
    {'region': 3, 'sales': 14287, 'amount': 7243.0}
    [Row(region=3, sales=14287)]
"""

import tempfile

import stream
from hummock.spark import spark_session
from relational.spark import source
from stream import functions as f

spark = spark_session("local[2]")                           # or "spark://host:7077", "yarn", or a session of yours
url = f"file://{tempfile.mkdtemp()}/warehouse"              # or a bucket: what the executors reach, too

rows = spark.range(100_000).selectExpr("id", "id % 7 AS region", "CAST(id % 2 AS DOUBLE) AS amount")
with stream.connect(url, create=True) as db:
    db.bulk_load(rows, "sales", mode="create", primary_key="id")            # sorted and written by the executors
    by_region = db.table("sales").group_by("region").agg(sales=f.count(), amount=f.sum("amount"))
    revenue = db.create_materialized_view("revenue", by_region, backfill=spark)
    print(revenue.get(3))

    db.table("sales").insert({"id": 100_000, "region": 3, "amount": 100.0})
    db.flush()
    print(revenue.get(3))

    source.register(spark)                                  # Spark reads what is committed, also while this runs
    views = spark.read.format("hummock").options(url=url, table="revenue")
    print(views.load().where("region = 3").select("region", "sales").collect())
