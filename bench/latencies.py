"""Latencies by percentile, as the benches report them in `extra_info`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PERCENTILES = {"p50": 50, "p99": 99, "p999": 99.9, "max": 100}


def milliseconds(**seconds: Sequence[float]) -> dict[str, float]:
    """`{"get p50": 0.001, ...}` of `get=[...]`, each in seconds."""
    return {f"{what} {name}": round(float(np.percentile(times, percent)) * 1e3, 4)
            for what, times in seconds.items() for name, percent in PERCENTILES.items()}
