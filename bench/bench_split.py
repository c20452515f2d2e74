"""The plan of a compaction of 10 TB: 40,000 descriptions of files of 256 MB, each with its 32 split samples.

Printed: files by CPU second, the memory that the process grew by, and the largest range beside the mean.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from hummock.base.process import peak_memory_bytes
from hummock.compaction.subcompaction_planner import split_of
from tests.support.worlds.split_world import RANGE_BYTES, SplitWorld

FILES = 40_000


@pytest.mark.benchmark(timer=time.process_time)
def test_plan_of_ten_terabytes(benchmark: Any) -> None:
    world = SplitWorld(random.Random(1), FILES)
    benchmark.group = "plan of 10 TB, files"
    before = peak_memory_bytes()
    found = benchmark.pedantic(lambda: split_of(world.files, RANGE_BYTES, world.read), rounds=3, warmup_rounds=1)
    sizes = world.sizes(found.cuts)
    megabytes = (peak_memory_bytes() - before) >> 20
    benchmark.extra_info.update(engine="hummock", rows=FILES, settings=(
        f"{len(sizes)} ranges, the largest {max(sizes) * len(sizes) / sum(sizes):.3f} of the mean, {megabytes} MB"))
