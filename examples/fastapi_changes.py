"""A web service: orders come in, a view follows them, browsers follow the view as server-sent events.

    pip install hummock fastapi uvicorn
    uvicorn fastapi_changes:app
    curl -N localhost:8000/revenue/changes                  # leave it running, and order something:
    curl localhost:8000/orders -H 'content-type: application/json' -d '{"region": "EUROPE", "amount": 30}'

Stopped or killed and started again, it goes on with the rows that it had.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import stream

TABLES = """
CREATE TABLE IF NOT EXISTS orders (region VARCHAR, amount DOUBLE);
CREATE MATERIALIZED VIEW IF NOT EXISTS revenue AS
    SELECT region, SUM(amount) AS revenue, COUNT(*) AS orders FROM orders GROUP BY region;
"""


class Order(BaseModel):
    region: str
    amount: float


@asynccontextmanager
async def session(app: FastAPI) -> AsyncIterator[None]:
    with stream.connect("shop", create=True) as db:
        db.sql(TABLES)
        app.state.db = db
        yield


app = FastAPI(lifespan=session)


@app.post("/orders")
def order(order: Order, request: Request) -> dict[str, int]:
    db: stream.Session = request.app.state.db
    return {"inserted": db.execute("INSERT INTO orders VALUES (?, ?)", [order.region, order.amount])}


@app.get("/revenue")
def revenue(request: Request) -> list[dict[str, Any]]:
    db: stream.Session = request.app.state.db
    return db.query("SELECT * FROM revenue ORDER BY region").rows()


@app.get("/revenue/changes")
def changes(request: Request) -> StreamingResponse:
    db: stream.Session = request.app.state.db

    async def events() -> AsyncIterator[str]:
        with db.changes("revenue") as feed:                 # until the browser leaves
            async for batch in feed:                        # the rows that are there, then each change
                yield f"data: {json.dumps(batch.to_pylist())}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
