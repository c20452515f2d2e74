"""Bids with the distributions of Nexmark's generator, as an Arrow IPC file.

Of every 50 events one is a person, 3 are auctions and 46 are bids; event n happens n / 10,000 s after the beginning.
Half of the bids go to the hot auction, the last multiple of 100, the others to one of the last 100 or the next 10;
three quarters come from the hot bidder, the others from one of the last 1,000 people or the next 10. Prices are
log-uniform from 100 to 10^8, half of the channels are one of four names, and `extra` brings a bid to about 100 bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

COLUMNS = ("auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP, "
           "extra VARCHAR")
BASE_US = 1_436_918_400_000_000         # 2015-07-15
FIRST_ID, EVENT_US = 1_000, 100
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
EXTRA_BYTES = (54, 82)
BATCH_ROWS = 65_536


def letters(rng: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    """Texts of random letters of these lengths."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    data = rng.integers(ord("a"), ord("z") + 1, int(offsets[-1]), np.uint8)
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def bids(first: int, rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    """Bids number `first` to `first + rows`."""
    numbers = np.arange(first, first + rows, dtype=np.int64)
    events = numbers // 46 * 50 + 4 + numbers % 46
    people, auctions = events // 50, events // 50 * 3 + 2
    cold_auction = np.maximum(auctions - 100, 0) + rng.integers(0, 111, rows)
    auction = np.where(rng.random(rows) < 0.5, auctions // 100 * 100, cold_auction)
    active = np.minimum(people, 1_000)
    cold_bidder = people - active + (rng.random(rows) * (active + 10)).astype(np.int64)
    bidder = np.where(rng.random(rows) < 0.75, people // 100 * 100 + 1, cold_bidder)
    channels = pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(10_000))])
    channel = np.where(rng.random(rows) < 0.5, rng.integers(0, 4, rows), rng.integers(4, 10_004, rows))
    urls = pa.array([f"https://www.nexmark.com/{a}{b}c/item.htm?query=1" for a in "abcdefgh" for b in "abcdefgh"])
    return pa.record_batch({
        "auction": FIRST_ID + auction, "bidder": FIRST_ID + bidder,
        "price": np.round(10 ** (6 * rng.random(rows)) * 100).astype(np.int64),
        "channel": channels.take(pa.array(channel)), "url": urls.take(pa.array(rng.integers(0, len(urls), rows))),
        "date_time": pa.array((BASE_US + events * EVENT_US) // 1_000 * 1_000, pa.timestamp("us")),
        "extra": letters(rng, rng.integers(*EXTRA_BYTES, rows)),
    })


def write_bids(
    path: Path, first: int, rows: int, columns: list[str] | None = None, batch_rows: int = BATCH_ROWS
) -> None:
    """An Arrow IPC file of the bids number `first` to `first + rows`, of these columns or all."""
    rng = np.random.default_rng(first + 42)
    schema = bids(0, 1, rng).schema if columns is None else bids(0, 1, rng).select(columns).schema
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for at in range(first, first + rows, batch_rows):
            batch = bids(at, min(batch_rows, first + rows - at), rng)
            writer.write_batch(batch.select(schema.names))
