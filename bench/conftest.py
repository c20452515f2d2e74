"""Prints, after pytest-benchmark's tables, one line a measurement: rate by median and the ratio to ours.

A benchmark names its group, and in `extra_info` who ran (`engine`), the rows it handled and the engine's settings; with
`gain`, what of how many: how much faster two are than one.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from hummock.base.process import SWITCH_INTERVAL_SECONDS

OURS = "hummock"


@pytest.fixture
def prepared_process() -> Iterator[None]:
    """The switch interval that a process with busy Python threads beside a store should have."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    yield
    sys.setswitchinterval(before)


def _rate(bench: Any) -> float:
    return float(bench.extra_info["rows"]) / float(bench.stats.median)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    groups: dict[str, list[Any]] = defaultdict(list)
    for bench in session.benchmarks if session else []:
        if not bench.has_error and "engine" in bench.extra_info:
            groups[bench.group].append(bench)
    if not groups:
        return
    write = terminalreporter.write_line
    terminalreporter.section("ratios (median of the rounds, same run)")
    for group, benches in sorted(groups.items()):
        ours = next((_rate(bench) for bench in benches if bench.extra_info["engine"] == OURS), None)
        for bench in sorted(benches, key=_rate, reverse=True):
            rate = _rate(bench)
            ratio = "" if ours is None or bench.extra_info["engine"] == OURS else f"   ours is {ours / rate:.2f}x"
            write(f"{group:28} {bench.extra_info['engine']:14} {rate / 1e6:9.3f} M/s{ratio}")
    counted: dict[str, dict[int, float]] = defaultdict(dict)
    for bench in (bench for benches in groups.values() for bench in benches if "gain" in bench.extra_info):
        of, count = bench.extra_info["gain"]
        counted[of][count] = _rate(bench)
    for of, rates in sorted(counted.items()):
        if rates.keys() >= {1, 2}:
            write(f"gain of {of}: {rates[2] / rates[1]:.2f}x")
    infos = [bench.extra_info for benches in groups.values() for bench in benches]
    for engine, text in sorted({info["engine"]: info["settings"] for info in infos if "settings" in info}.items()):
        write(f"{engine}: {text}")
