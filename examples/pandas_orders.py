"""pandas frames go into a table, and a view that follows it comes out as a frame.

    pip install 'hummock[pandas]'
    python pandas_orders.py

It prints:

       region  revenue  orders
    0    ASIA      5.0       1
    1  EUROPE     42.0       2
       region  revenue  orders
    0    ASIA     25.0       2
    1  EUROPE     30.0       1
"""

import pandas as pd

import stream
from stream import functions as f

first = pd.DataFrame({"id": [1, 2, 3], "region": ["EUROPE", "ASIA", "EUROPE"], "amount": [30.0, 5.0, 12.0]})
later = pd.DataFrame({"id": [4], "region": ["ASIA"], "amount": [20.0]})

with stream.connect("memory://") as db:
    orders = db.create_table("orders", first, primary_key="id")     # columns, types and rows of the frame
    by_region = orders.group_by("region").agg(revenue=f.sum("amount"), orders=f.count())
    revenue = db.create_materialized_view("revenue", by_region)
    db.flush()                                                      # what was inserted is in the view from here on
    print(revenue.order_by("region").df())

    orders.insert(later)
    orders.delete(id=3)
    db.flush()
    print(revenue.order_by("region").df())
