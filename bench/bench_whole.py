"""The honest whole beside RocksDB: HUMMOCK_WHOLE_ROWS rows (50,000,000 by default) with compaction on.

Both engines run in a process of their own, sync each 100,000 rows, and stop the clock when no compaction is due.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.peers import engine_class
from bench.whole_run import ENGINES

ROWS = int(os.environ.get("HUMMOCK_WHOLE_ROWS", "50000000"))
RUN_SECONDS = 3_600


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.timeout(RUN_SECONDS)
def test_whole(benchmark: Any, name: str, tmp_path: Path) -> None:
    kind = engine_class(name)
    report: dict[str, Any] = {}

    def whole() -> None:
        command = [sys.executable, "-m", "bench.whole_run", name, str(ROWS), str(tmp_path / "db")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=RUN_SECONDS)
        report.update(json.loads(done.stdout))

    benchmark.group = "whole, wall"
    benchmark.pedantic(whole, rounds=1)
    benchmark.extra_info.update(engine=name, rows=ROWS, settings=kind.settings)
    print(f"\n{name}: {report['wall_seconds']:.1f} s wall, {report['cpu_seconds']:.1f} CPU s, "
          f"{ROWS / report['cpu_seconds'] / 1e6:.3f} M rows per CPU s, "
          f"written {report['written_bytes'] / report['raw_bytes']:.2f}x the raw rows, "
          f"space {report['space_bytes'] / report['raw_bytes']:.2f}x, "
          f"{report['most_space_bytes'] / report['raw_bytes']:.2f}x at most, "
          f"peak RSS less import {report['peak_rss_bytes'] / 2**20:.0f} MiB, debt {report['debt']}")
