"""Compaction pickers, on LSM trees drawn as text."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hummock.base.key import KeyRange, user_key
from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import TableRules
from hummock.compaction.picker import early as picker_early
from hummock.compaction.picker import early_bytes_of, pick_compaction, pick_range, tombstones
from hummock.compaction.picker import l0 as picker_l0
from hummock.compaction.picker.candidate import (
    CompactionCandidate,
    VersionEdit,
    codec_for,
    files_of,
    input_bytes,
    key_bounds,
)
from hummock.compaction.picker.context import PickerContext
from hummock.compaction.picker.key_slices import pick_slice
from hummock.compaction.picker.l0 import pick_to_base
from hummock.compaction.task import TaskInput, TaskKind
from hummock.options import CompactionOptions
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, Level, Run

CASES = Path(__file__).parents[3] / "cases" / "picker.txt"
FILE = re.compile(r"(\d+)\[(\w)-(\w)\](\d+)(?:/(\d+))?(i?)"
                  r"(?:t=([\d,]+))?(?:e=(\d+)-(\d+))?(?:stale=(\d+))?(?:t=([\d,]+))?")
OPTIONS = CompactionOptions(l0_runs=4, l0_base_bytes=100, l0_most_bytes=200, base_level_bytes=200, l0_runs_slowdown=8,
                            l0_runs_limit=16, sstable_bytes=64, task_bytes=10_000, codecs=("none",))


@pytest.fixture(autouse=True)
def small_tiers(monkeypatch):
    monkeypatch.setattr(picker_l0, "SMALLEST_TIER_BYTES", 10)
    monkeypatch.setattr(picker_l0, "MERGED_SHARE", 1)
    monkeypatch.setattr(picker_early, "EARLY_BYTES", 64)
    monkeypatch.setattr(tombstones, "DENSE_ROWS", 100)


def file_of(match):
    number, first, last, size, raw, inline, tables, low, high, stale, later_tables = match
    ids = tuple(map(int, (tables or later_tables or "1").split(",")))
    return SstableInfo(f"{int(number):032x}", user_key(ids[0], 0, first.encode()),
                       user_key(ids[-1], 0, last.encode()), 100, int(size), int(raw or size), ids, int(low or 1) << 16,
                       int(high or 1) << 16, int(stale or 0), id=int(number), inline_data=bytes(bool(inline)))


def inputs_of(version, ids):
    """The files by run, newest run first."""
    parts = [(level.number, run.id, tuple(info for info in run.sstables if info.id in ids))
             for level in version.levels for run in level.runs]
    return tuple(TaskInput(level, run, files) for level, run, files in parts if files)


class Tree:
    """The version, running tasks and options of a text case."""

    def __init__(self):
        self.levels, self.running, self.options = {0: []}, [], OPTIONS
        self.watermark, self.dropped, self.tables, self.range, self.early_bytes = 0, set(), {}, None, 0

    def read(self, line):
        if run_line := re.match(r"L(\d+) (\d+): (.*)", line):
            infos = tuple(file_of(match) for match in FILE.findall(run_line[3]))
            self.levels.setdefault(int(run_line[1]), []).append(Run(int(run_line[2]), infos))
            return
        verb, *words = line.split()
        if verb == "running":
            self.running.append((tuple(map(int, words[:words.index("->")])), int(words[-1][1:])))
        elif verb == "watermark":
            self.watermark = int(words[0]) << 16
        elif verb == "drop":
            self.dropped.add(int(words[0]))
        elif verb == "ttl":
            self.tables[int(words[0])] = TableRules(ttl_ms=int(words[1]))
        elif verb == "mark":
            rules = self.tables.get(int(words[0]), TableRules())
            mark = KeyWatermark(int(words[2][1:]) << 16, ((0, 0, words[1].encode()),))
            self.tables[int(words[0])] = replace(rules, watermarks=(mark, *rules.watermarks))
        elif verb in ("early", "rest"):
            self.early_bytes = {"early": picker_early.EARLY_BYTES, "rest": 1 << 40}[verb]
        elif verb == "range":
            self.range = KeyRange(*(user_key(1, 0, word.encode()) for word in words))
            self.range = replace(self.range, end=self.range.end + b"\0")
        else:
            assert verb == "set"
            value = tuple(words[1:]) if words[0] == "codecs" else int(words[1])
            self.options = replace(self.options, **{words[0]: value})

    def pick(self):
        levels = tuple(Level(number, tuple(self.levels.get(number, ()))) for number in range(max(self.levels) + 1))
        version = HummockVersion(1, 1 << 40, 0, levels, self.tables, frozenset(self.dropped))
        running = []
        for ids, target in self.running:
            inputs = inputs_of(version, ids)
            running.append(CompactionCandidate(TaskKind.LEVEL, inputs, target, inputs[0].run if target == 0 else 0))
        if self.range is not None:
            return pick_range(version, running, self.options, self.range)[1]
        found = pick_compaction(version, running, self.options, self.watermark, early_bytes=self.early_bytes)
        if self.early_bytes and pick_compaction(version, running, self.options, self.watermark) is None:
            early_bytes = early_bytes_of(version, running, self.options)
            assert (0 < early_bytes <= self.early_bytes) == (found is not None)
            assert found is None or early_bytes == input_bytes(found)
        return found


def shown(work):
    if work is None:
        return "nothing"
    if isinstance(work, VersionEdit):
        ids = " ".join(map(str, work.removed))
        if not work.added:
            return f"{work.kind} removes {ids}"
        assert [info.id for part in work.added for info in part.sstables] == list(work.removed)
        source = f"{work.added[0].level - 1}/0: " if work.kind == TaskKind.LEVEL else ""
        return f"{work.kind} {source}{ids} -> moves to L{work.added[0].level}"
    inputs = ", ".join(f"{part.level}/{part.run}: {' '.join(str(info.id) for info in part.sstables)}"
                       for part in work.inputs)
    return f"{work.kind} {inputs} -> L{work.target_level}/{work.target_run}{' drop' * work.drop_tombstones}"


def cases():
    text = "\n".join(line for line in CASES.read_text().splitlines() if not line.startswith("#"))
    for case in text.split("title ")[1:]:
        title, _, rest = case.partition("\n")
        tree, _, result = rest.partition("----")
        yield pytest.param(tree.split("\n"), result.strip(), id=title)


@pytest.mark.parametrize(("lines", "result"), list(cases()))
def test_case(lines, result):
    tree = Tree()
    for line in filter(None, lines):
        tree.read(line)
    assert shown(tree.pick()) == result


def random_tree(rng):
    """Runs of one to eight files over 1,000 keys in level 0, and a base level."""
    number = 0

    def run(level, files, size):
        nonlocal number
        bounds = sorted(rng.sample(range(1_000), 2 * files))
        infos = []
        for first, last in zip(bounds[::2], bounds[1::2], strict=True):
            number += 1
            infos.append(SstableInfo(f"{number:032x}", b"%04d" % first, b"%04d" % last, 100, size, size, (1,),
                                     1 << 16, 1 << 16, id=number))
        return Run(number if level == 0 else 0, tuple(infos))

    base = run(6, rng.randint(1, 20), rng.randint(1, 20))
    runs = [run(0, rng.choice((1, 2, 5, 8)), rng.randint(1, 20)) for _ in range(rng.randint(1, 6))]
    return HummockVersion(1, 1 << 40, 0, (Level(0, tuple(runs[::-1])), *(Level(level) for level in range(1, 6)),
                                          Level(6, (base,))))


@pytest.mark.parametrize("seed", range(300))
def test_nothing_older_stays_above_what_goes_down(seed):
    """Random trees with at most one running task; a slice that fits within `task_bytes` does not exceed it."""
    rng = random.Random(seed)
    version = random_tree(rng)
    options = replace(OPTIONS, l0_base_bytes=1, task_bytes=rng.choice((20, 60, 200)))
    runs = version.levels[0].runs
    busy = rng.sample(range(len(runs)), rng.randint(0, 1))
    running = [CompactionCandidate(TaskKind.INTRA_L0, (TaskInput(0, run.id, run.sstables),), 0, run.id)
               for run in (runs[index] for index in busy)]
    context = PickerContext(version, running, options, 1 << 40)
    within, beyond = pick_slice(context)
    for pick in filter(None, (within, beyond, pick_to_base(context))):
        if pick.target_level == 0:
            continue
        inside = {info.id for info in files_of(pick)}
        assert not any(info.id in inside for task in running for info in files_of(task)), f"seed {seed}"
        upper = [(part.run, info) for part in pick.inputs if part.level == 0 for info in part.sstables]
        for number, info in upper:
            older = [other for run in runs if run.id < number for other in run.covering(info.smallest, info.largest)]
            assert {other.id for other in older} <= inside, f"seed {seed}"
        below = version.levels[6].runs[0].covering(*key_bounds(info for _, info in upper))
        assert {info.id for info in below} <= inside, f"seed {seed}"
    if within is not None:
        assert sum(info.data_bytes for info in files_of(within)) <= options.task_bytes


@pytest.mark.parametrize(("runs", "level", "codec"), [
    (["1[a-c]5", "2[b-d]5"], 0, "none"), (["1[a-c]5", "2[c-d]5"], 0, "none"), (["1[d-e]5", "2[a-c]5"], 0, "zstd"),
    (["1[a-b]5 2[e-f]5", "3[c-d]5"], 0, "zstd"), (["1[a-c]5", "2[b-d]5"], 1, "lz4"), (["1[d-e]5", "2[a-c]5"], 1, "lz4"),
    (["1[a-c]5", "2[b-d]5"], 6, "zstd"),
])
def test_merges_within_level_0_are_compressed_as_below_if_they_move_down_as_they_are(runs, level, codec):
    inputs = tuple(TaskInput(0, number, tuple(map(file_of, FILE.findall(files)))) for number, files in enumerate(runs))
    pick = CompactionCandidate(TaskKind.INTRA_L0, inputs, level)
    assert codec_for(pick, replace(OPTIONS, codecs=("none", "lz4", "zstd"))) == codec


@pytest.mark.parametrize("runs, merged", [(7, 0), (8, 5), (9, 5)])
def test_many_runs_are_merged_that_are_twice_as_large_but_not_all_that_soon_moves_down(monkeypatch, runs, merged):
    monkeypatch.setattr(picker_l0, "MERGED_SHARE", 4)
    tree = Tree()
    for number in range(runs, 0, -1):
        tree.read(f"L0 {number}: {number}[a-z]20")
    tree.read("L6 0: 99[a-z]300")
    context = PickerContext(HummockVersion(1, 1 << 40, 0, tuple(
        Level(number, tuple(tree.levels.get(number, ()))) for number in range(7))), [], OPTIONS, 0)
    work = picker_l0.pick_like_sizes(context)
    found = [] if work is None else [info.id for part in work.inputs for info in part.sstables]
    assert sorted(found) == list(range(1, merged + 1)), "the oldest"
