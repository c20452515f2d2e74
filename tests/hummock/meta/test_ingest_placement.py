"""Ingest target levels: cases of trees drawn as text, and a model that compares every key."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hummock.compaction.picker.candidate import CompactionCandidate
from hummock.compaction.task import TaskInput, TaskKind
from hummock.meta.ingest_placement import ingest_target_level
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, Level, Run
from tests.hummock.compaction.picker.test_picker import FILE, Tree, file_of, inputs_of

CASES = Path(__file__).parents[2] / "cases" / "ingest_placement.txt"


class IngestTree(Tree):
    """A tree with entering files and loaded files."""

    def __init__(self):
        super().__init__()
        self.entering, self.load = (), ()

    def read(self, line):
        verb, _, rest = line.partition(" ")
        if verb not in ("entering", "load"):
            super().read(line)
            return
        files = tuple(file_of(match) for match in FILE.findall(rest))
        setattr(self, verb, files)

    def level(self):
        levels = tuple(Level(number, tuple(self.levels.get(number, ()))) for number in range(max(self.levels) + 1))
        version = HummockVersion(1, 1 << 40, 0, levels)
        running = [CompactionCandidate(TaskKind.LEVEL, inputs_of(version, ids), target) for ids, target in self.running]
        return ingest_target_level(version, running, self.entering, self.load, 6)


def cases():
    text = "\n".join(line for line in CASES.read_text().splitlines() if not line.startswith("#"))
    for case in text.split("title ")[1:]:
        title, _, rest = case.partition("\n")
        tree, _, result = rest.partition("----")
        yield pytest.param(tree.split("\n"), int(result), id=title)


@pytest.mark.parametrize(("lines", "level"), list(cases()))
def test_case(lines, level):
    tree = IngestTree()
    for line in filter(None, lines):
        tree.read(line)
    assert tree.level() == level


@pytest.mark.parametrize("seed", range(200))
def test_no_run_with_tables_of_the_load_is_above_it_and_none_overlaps_it_in_the_last_level(seed):
    """A file [first, last] may hold any key of its tables in between."""
    rng = random.Random(seed)
    number = 0

    def run(limit, tables):
        nonlocal number
        bounds = sorted(rng.sample(range(60), 2 * rng.randint(0, limit)))
        infos = []
        for first, last in zip(bounds[::2], bounds[1::2], strict=True):
            number += 1
            ids = tuple(sorted(rng.sample(tables, rng.randint(1, len(tables)))))
            infos.append(SstableInfo(f"{number:032x}", b"%02d" % first, b"%02d" % last, 9, 9, 9, ids, 1 << 16, 1 << 16,
                                     id=number))
        return tuple(infos)

    tables = (1, 2, 3)
    levels = [[run(3, tables) for _ in range(rng.randint(0, 2))]] + [[run(2, tables)] for _ in range(6)]
    for level in rng.sample(range(1, 6), 4):
        levels[level] = []
    version = HummockVersion(1, 1 << 40, 0, tuple(
        Level(level_number, tuple(Run(100 * level_number + at, files) for at, files in enumerate(runs) if files))
        for level_number, runs in enumerate(levels)))
    entering, load = run(2, tables), run(2, rng.choice([(1,), (2,), (1, 2)]))
    tasks = []
    for level in version.levels[:6]:
        if level.runs and rng.random() < 0.3:
            picked = TaskInput(level.number, level.runs[0].id, level.runs[0].sstables)
            tasks.append(CompactionCandidate(TaskKind.LEVEL, (picked,), 6))
    found = ingest_target_level(version, tasks, entering, load, 6)

    def span(info):
        return set(range(int(info.smallest), int(info.largest) + 1))

    above = [*entering, *(info for level in version.levels[:6] for info in level.sstables)]
    covered = any(span(info) & span(mine) and set(info.table_ids) & set(mine.table_ids)
                  for info in above for mine in load)
    task_bounds = [set(range(min(int(info.smallest) for info in task.inputs[0].sstables),
                       max(int(info.largest) for info in task.inputs[0].sstables) + 1)) for task in tasks]
    met = any(keys & span(mine) for mine in load for keys in (*map(span, version.levels[6].sstables), *task_bounds))
    assert found == (0 if covered or met else 6)
