"""What a second compaction thread brings: `python -m bench.bench_threads FOLDER [million rows of a run] [ranges]`.

The same task, two runs into one, on one core (the process may use one CPU), on one thread (whose files leave, and
whose filters are built, beside it), on two threads, and by two processes with half the rows and one thread each. The
ways take turns, so that all meet the same machine. Virtual processors may at times share one core: before and after
each round two threads hash, and the first figure is of rounds where that took as long as at its best, the last of all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from bench.bench_compaction import PROCESS, ROW_BYTES, SHAPES, Runs

SECONDS = 25.0              # for a shape
WAYS = ("one core", "one thread", "two threads", "a process", "two processes")
HASHED = bytes(2 << 20)
APART = 1.35                # so much longer than at its best the hashing may take


def hash_on_two() -> float:
    """Seconds: about the same whether one thread hashes or two, where they have a core each."""
    threads = [threading.Thread(target=lambda: hashlib.blake2b(HASHED).digest()) for _ in range(2)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


class Bench:
    def __init__(self, folder: Path, shape: str, rows: int, ranges: int):
        self.runs, self.ranges = Runs(folder / "runs", shape, rows=rows), ranges
        self.cpus = os.sched_getaffinity(0)
        self.processes = [subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(folder / f"{number}"), shape, str(rows // 2), str(max(1, ranges // 2))],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for number in range(2)]
        self.in_processes(2)

    def in_processes(self, count: int) -> None:
        for process in self.processes[:count]:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in self.processes[:count]:
            assert process.stdout is not None and process.stdout.readline() == "\n"

    def work(self, way: str) -> tuple[float, float]:
        """Seconds by the clock, and of CPU where this process works."""
        if way == "one core":
            os.sched_setaffinity(0, {max(self.cpus)})
        began, cpu = time.perf_counter(), time.process_time()
        if "process" in way:
            self.in_processes(2 if way.startswith("two") else 1)
        else:
            self.runs.compact(self.ranges, 2 if way.startswith("two") else 1)
        took = time.perf_counter() - began, time.process_time() - cpu
        os.sched_setaffinity(0, self.cpus)
        self.runs.remove_outputs()
        time.sleep(0.05)                # processes remove theirs, too
        return took

    def close(self) -> None:
        for process in self.processes:
            process.communicate()


def main(folder: Path, rows: int, ranges: int) -> None:
    for shape in SHAPES:
        bench = Bench(folder, shape, rows, ranges)
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
        until, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < until:
            for way in WAYS:
                before = hash_on_two()
                took = bench.work(way)
                if number >= 2:
                    found[way].append((*took, max(before, hash_on_two())))
            number += 1
        bench.close()
        shutil.rmtree(folder)
        tell(shape, 2 * rows * ROW_BYTES, found)


def tell(shape: str, size_bytes: int, found: dict[str, list[tuple[float, float, float]]]) -> None:
    least = min(hashing for rounds in found.values() for _, _, hashing in rounds)
    seconds, every = {}, {}
    for way, rounds in found.items():
        apart = [one for one in rounds if one[2] < APART * least] or rounds
        seconds[way] = statistics.median(one[0] for one in apart)
        every[way] = statistics.median(one[0] for one in rounds)
        cpu = statistics.median(one[1] for one in apart)
        share = 0.5 if way == "a process" else 1
        speed = share * size_bytes / seconds[way] / 1e6
        spent = f", CPU {cpu * 1e3:5.0f} ms" if "process" not in way else ""
        print(f"{shape:8s}  {way:13s} {speed:6.0f} MB/s, {seconds[way] * 1e3:5.0f} ms{spent}",
              f"in {len(apart)} of {len(rounds)} rounds")
    for many, one, share in (("two threads", "one thread", 1), ("two threads", "one core", 1),
                             ("two processes", "a process", 2)):
        print(f"{shape:8s}  {many} / {one}: {share * seconds[one] / seconds[many]:.2f}, "
              f"in all rounds {share * every[one] / every[many]:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(float((sys.argv[2:3] or ["1"])[0]) * 1e6), int((sys.argv[3:4] or ["2"])[0]))
