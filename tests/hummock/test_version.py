import json
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hummock.base.table_rules import PrefixRule, TableRules
from hummock.errors import Corruption
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, RunAddition, VersionDelta, layers_of

CASES = Path(__file__).parents[1] / "cases" / "version.txt"
FILE = re.compile(r"\[(\w+)-(\w+)\](?:@(\d+))?")


@dataclass
class Range:
    start: bytes
    end: bytes | None


def make_info(first, last, epoch=1, number=0):
    return SstableInfo(name=f"{number:032x}", smallest=first.encode(), largest=last.encode(), rows=1,
                       data_bytes=100, uncompressed_bytes=200, table_ids=(1,), min_epoch=epoch,
                       max_epoch=epoch, id=number)


class VersionHistory:
    """Applies the steps of a case to a version, and keeps the deltas."""

    def __init__(self):
        self.version, self.deltas, self.files = HummockVersion(), [], 0

    def number(self, infos):
        numbered = []
        for info in infos:
            self.files += 1
            numbered.append(replace(info, id=self.files, name=f"{self.files:032x}"))
        return tuple(numbered)

    def step(self, **changes):
        delta = VersionDelta(**{"id": self.version.id + 1, "safe_epoch": self.version.safe_epoch,
                                "max_committed_epoch": self.version.max_committed_epoch, **changes})
        self.version = self.version.apply(delta)
        self.deltas.append(delta)

    def run(self, line):
        verb, rest = line.split(None, 1)
        if verb == "commit":
            epoch, _, files = rest.partition(":")
            layers = [self.number(layer) for layer in layers_of(parse_files(files))]
            self.step(max_committed_epoch=int(epoch),
                      added=tuple(RunAddition(0, layer[-1].id, layer) for layer in layers))
        elif verb == "compact:":
            removed, _, output = rest.partition("->")
            files, _, target = output.partition("@ ")
            level, run = map(int, target.split("/"))
            infos = self.number(parse_files(files))
            self.step(removed=tuple(map(int, removed.split())),
                      added=(RunAddition(level, run, infos),) if infos else ())
        elif verb == "safe":
            self.step(safe_epoch=int(rest))
        elif verb == "rule":
            table, size = rest.split()
            self.step(tables={int(table): None if size == "none" else TableRules(PrefixRule(int(size)))})
        else:
            assert verb == "drop"
            self.step(dropped_tables=(int(rest),))


def parse_files(text):
    return [make_info(first, last, int(epoch or 1)) for first, last, epoch in FILE.findall(text)]


def shown(version):
    head = f"version {version.id} committed {version.max_committed_epoch} safe {version.safe_epoch}"
    if version.tables:
        head += " rules " + " ".join(
            f"{table}:{rules.prefix.fixed_bytes}" for table, rules in version.tables.items())
    if version.dropped_tables:
        head += " dropped " + " ".join(map(str, sorted(version.dropped_tables)))
    lines = [head]
    for level in version.levels:
        for run in level.runs:
            files = " ".join(f"{info.id}[{info.smallest.decode()}-{info.largest.decode()}]"
                             for info in run.sstables)
            lines.append(f"L{level.number} run {run.id}: {files}")
    return "\n".join(lines)


def cases():
    text = "\n".join(line for line in CASES.read_text().splitlines() if not line.startswith("#"))
    for case in text.split("title ")[1:]:
        steps, _, result = case.strip().partition("----")
        title, *lines = steps.strip().splitlines()
        yield pytest.param(lines, result.strip(), id=title)


@pytest.mark.parametrize(("lines", "result"), list(cases()))
def test_case(lines, result):
    history = VersionHistory()
    try:
        for line in lines:
            history.run(line)
    except Corruption as error:
        assert result.startswith("refused: ")
        assert result.removeprefix("refused: ") in str(error)
        return
    assert shown(history.version) == result


@pytest.mark.parametrize("lines", [case.values[0] for case in cases() if "refused" not in case.values[1]])
def test_versions_and_deltas_survive_json(lines):
    history = VersionHistory()
    for line in lines:
        history.run(line)
    version = history.version
    assert HummockVersion.from_json(json.loads(json.dumps(version.to_json()))) == version
    replayed = HummockVersion()
    for delta in history.deltas:
        copy = VersionDelta.from_json(json.loads(json.dumps(delta.to_json())))
        assert copy == delta
        replayed = replayed.apply(copy)
    assert replayed == version


def test_a_delta_for_another_version_is_refused():
    with pytest.raises(Corruption, match="delta 1"):
        HummockVersion().apply(VersionDelta(2, 0, 0))


def test_a_version_prints_as_one_line():
    assert repr(HummockVersion()) == "HummockVersion(0, epoch 0, readable from 0, no files)"
    info = SstableInfo("0" * 32, b"a", b"b", 1, 1, 1, (1,), 1 << 16, 1 << 16, id=1)
    version = HummockVersion().apply(VersionDelta(1, 1 << 16, 0, (RunAddition(0, 1, (info,)),)))
    assert repr(version) == "HummockVersion(1, epoch 65536, readable from 0, level 0: 1 files in 1 runs)"


def test_an_unknown_format_is_refused():
    for kind in (HummockVersion(), VersionDelta(1, 0, 0)):
        for unknown in (0, -1, "1", None):
            with pytest.raises(ValueError):
                type(kind).from_json({**kind.to_json(), "format": unknown})


@pytest.mark.parametrize("seed", range(20))
def test_overlapping_files_are_those_of_a_plain_filter(seed):
    rng, history = random.Random(seed), VersionHistory()
    for epoch in range(1, 12):
        files = []
        for _ in range(rng.randrange(6)):
            first, last = sorted(rng.choices("abcdefghijklmnop", k=2))
            files.append(f"[{first}-{last}]@{epoch}")
        history.run(f"commit {epoch}: {' '.join(files)}")
    for _ in range(50):
        start, end = sorted(rng.choices("abcdefghijklmnopq", k=2))
        bounds = Range(start.encode(), None if rng.random() < .2 else end.encode())
        expected = [tuple(info for info in run.sstables if info.largest >= bounds.start
                          and (bounds.end is None or info.smallest < bounds.end))
                    for run in history.version.runs]
        assert list(history.version.overlapping(bounds)) == [found for found in expected if found], seed


@pytest.mark.parametrize("seed", range(50))
def test_layers_are_disjoint_and_newer_ones_are_above(seed):
    rng = random.Random(seed)
    infos = []
    for number in range(rng.randrange(30)):
        first, last = sorted(rng.choices("abcdefghijklmnopqrstuvwxyz", k=2))
        infos.append(make_info(first, last, rng.randrange(5), number))
    layers = layers_of(infos)
    assert sorted(info.id for layer in layers for info in layer) == [info.id for info in infos]
    depth = {info.id: number for number, layer in enumerate(layers) for info in layer}
    for number, one in enumerate(infos):
        for other in infos[number + 1:]:
            if one.smallest <= other.largest and other.smallest <= one.largest:
                newer_last = other.max_epoch >= one.max_epoch
                assert (depth[other.id] > depth[one.id]) == newer_last, seed
