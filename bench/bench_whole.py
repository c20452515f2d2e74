"""The honest whole beside RocksDB: HUMMOCK_WHOLE_ROWS rows (50,000,000 unless told otherwise) with compaction on.

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
    told: dict[str, Any] = {}

    def whole() -> None:
        command = [sys.executable, "-m", "bench.whole_run", name, str(ROWS), str(tmp_path / "db")]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=RUN_SECONDS)
        told.update(json.loads(done.stdout))

    benchmark.group = "whole, wall"
    benchmark.pedantic(whole, rounds=1)
    benchmark.extra_info.update(engine=name, rows=ROWS, settings=kind.settings)
    print(f"\n{name}: {told['wall_seconds']:.1f} s wall, {told['cpu_seconds']:.1f} CPU s, "
          f"{ROWS / told['cpu_seconds'] / 1e6:.3f} M rows per CPU s, "
          f"written {told['written_bytes'] / told['raw_bytes']:.2f}x the raw rows, "
          f"space {told['space_bytes'] / told['raw_bytes']:.2f}x, {told['most_space_bytes'] / told['raw_bytes']:.2f}x "
          f"at most, peak RSS less import {told['peak_rss_bytes'] / 2**20:.0f} MiB, debt {told['debt']}")
