"""[P11]: hostile input is refused with a typed error, runs no code, escapes no directory and crashes no process.

tests/hummock/sstable/test_damage covers damage with wrong checksums; here checksums are valid, or there are none."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import hummock
from hummock.base.key import user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.compaction.subcompaction import run_subcompaction
from hummock.compaction.task import CompactTask, RangeResult, RangeSpec
from hummock.errors import FormatTooNew, HummockError, InvalidTask
from hummock.object_store import open_object_store
from hummock.options import StorageOptions
from hummock.tools.verify import verify_version
from tests.reliability.mutated_files import mutated
from tests.reliability.store_harness import EVERYTHING, Lab, at, keys
from tests.support.drivers.seeds import amount, seeds
from tests.support.worlds.manager_parts import task_answers

ROOT = Path(__file__).resolve().parents[2]
STRANGE = (None, True, -1, 0, 1 << 31, 1 << 63, 1 << 64, 10 ** 40, 0.5, float("inf"), float("nan"), "", "x",
           "../../etc", "a" * 10_000, "\0", "\ud800", [], {}, [[]], [None], {"a": 1}, "00" * 16)
KEYS = ("", "/", "/etc/passwd", "..", "../x", "a/../../x", "a//b", "a/./b", ".", "a/.", "a\0b", "a\nb", "\ud800",
        "x" * 5_000, "a/" * 600, ".temporary/x", " ", "a\\..\\b", "C:\\x", "%2e%2e/x", "~", "~/x", "sst/../../x",
        "a/", "file:///etc/passwd", "\u202e", "a/\u0000")
URLS = ("", "file", "file:", "file://", "file:relative", "file://host/path", "memory", "memory://x", "http://localhost",
        "://", "file:///\0", "s3://", "s3:///key", "javascript:alert(1)", "\0", "sqlite:///x", "file:///dev/null/x",
        "file:///proc/1/mem", "pickle://x", "x" * 100_000)


def run_mutations(seed, count):
    done = subprocess.run([sys.executable, "-m", "tests.reliability.mutated_files", str(seed), str(count)], cwd=ROOT,
                          capture_output=True, text=True, timeout=3_000)
    assert done.returncode == 0, f"seed {seed}: ended with {done.returncode}\n{done.stderr[-2_000:]}"


@pytest.mark.parametrize("seed", seeds(1, 2))
def test_mutated_files_with_right_checksums_are_refused_or_read(seed):
    run_mutations(seed, amount(20_000, 50_000))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(100, 105))
def test_a_million_of_them_are(seed):
    run_mutations(seed, 200_000)


def changed(rng, value, depth=0):
    """A JSON value with one part replaced, removed or duplicated."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < .8):
        out, name = dict(value), rng.choice(sorted(value))
        if rng.random() < .1:
            del out[name]
        else:
            out[name] = changed(rng, value[name], depth + 1)
        return out
    if isinstance(value, list) and value and rng.random() < .8:
        index = rng.randrange(len(value))
        fate = rng.random()
        if fate < .1:
            return value[:index] + value[index + 1:]
        if fate < .2:
            return value[:index] + [value[index]] * 2 + value[index + 1:]
        return [*value[:index], changed(rng, value[index], depth + 1), *value[index + 1:]]
    return rng.choice(STRANGE)


@pytest.fixture(scope="module")
def given():
    """A store with rules and several runs, a task over it and the token of the task."""
    lab = Lab(block_bytes=300)
    rules = {1: TableRules(PrefixRule(8), ttl_ms=0, vnode_groups=2)}
    for number in range(1, 4):
        rows = {user_key(1, vnode, b"%d%d" % (row, number)): b"v" * 30 for row in range(9) for vnode in range(3)}
        lab.commit(number, rows, **({"tables": rules} if number == 1 else {}))
    lab.manager.compact_range(EVERYTHING)
    task, token = lab.manager.get_compact_task("c")
    yield lab, task, token
    lab.close()


def test_specs_and_results_of_any_shape_are_invalid_tasks_or_end_typed(given):
    lab, task, _ = given
    (spec,) = task.ranges()[:1]
    result = RangeResult(0, (), 1, 1, 9, 9, 1)
    valid = 0
    for seed in range(3_000):
        rng = random.Random(seed)
        kind, good = rng.choice([(RangeSpec, spec), (CompactTask, task), (RangeResult, result)])
        record = changed(rng, good.to_json())
        try:
            made = kind.from_json(record)
        except (InvalidTask, FormatTooNew):
            continue
        except BaseException as error:
            error.add_note(f"seed {seed}: {json.dumps(record)[:3_000]}")
            raise
        if kind is RangeSpec:
            valid += 1
            try:
                run_subcompaction(made, lab.objects, lambda rng=rng: rng.randbytes(16).hex(), memory_bytes=1 << 20)
            except HummockError:
                pass
            except BaseException as error:
                error.add_note(f"seed {seed}: {json.dumps(record)[:3_000]}")
                raise
    assert valid > 20


@pytest.mark.parametrize("record", STRANGE, ids=lambda record: repr(record)[:20])
def test_what_is_no_record_at_all_is_an_invalid_task(record):
    for kind in (RangeSpec, CompactTask, RangeResult):
        with pytest.raises(InvalidTask):
            kind.from_json(record)


def use_everything(lab):
    """Opens the store as a new process would, and calls everything that reads a row."""
    manager = lab.process()
    with lab.open(manager) as store:
        rows = lab.rows(99, store)
        list(verify_version(store.version, lab.objects))
    manager.get_compact_task("other")
    manager.running_tasks()
    task_answers(manager)
    manager.claim_writer()
    lab.vacuum(grace_ms=1 << 40)
    return rows


def test_rows_of_the_meta_store_of_any_shape_end_typed(given):
    """Stores protect rows by digests; here an attacker wrote them."""
    lab, _, _ = given
    rows = lab.meta.list("")
    assert len(rows) >= 6
    for seed in seeds(250, 1_500):
        rng = random.Random(seed)
        key, value = rng.choice(rows)
        bad = (mutated(rng, value) if rng.random() < .3 else
               json.dumps(changed(rng, json.loads(value))).encode() if rng.random() < .98 else b"[" * 100_000)
        world = Lab()
        world.objects, world.clock = lab.objects, lab.clock
        world.meta._rows = {**dict(rows), key: bad}
        try:
            use_everything(world)
        except HummockError:
            pass
        except BaseException as error:
            error.add_note(f"seed {seed}: {key} is {bad[:2_000]!r}")
            raise


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_hostile_names_of_objects_reach_nothing(kind, tmp_path):
    outside = tmp_path / "x"
    outside.write_bytes(b"not yours")
    store = open_object_store("memory://" if kind == "memory" else f"file://{tmp_path}/store")
    for key in KEYS:
        for use in (lambda key=key: store.put(key, b"1"), lambda key=key: store.get(key),
                    lambda key=key: store.head(key), lambda key=key: store.delete([key]),
                    lambda key=key: store.create(key), lambda key=key: list(store.list(key))):
            try:
                use()
            except HummockError:
                pass
            except BaseException as error:
                error.add_note(repr(key)[:200])
                raise
    assert outside.read_bytes() == b"not yours"
    assert {path.name for path in tmp_path.iterdir()} <= {"x", "store"}


@pytest.mark.parametrize("url", URLS, ids=lambda url: repr(url)[:20])
def test_hostile_urls_are_refused_typed(url):
    for role in ("reader", "writer"):
        with pytest.raises((HummockError, ImportError)):
            hummock.open(url, role=role).close()


def test_hostile_tables_epochs_and_options_are_refused_before_anything_changes():
    lab = Lab()
    lab.commit(1, keys("a"))
    before = dict(lab.meta.list(""))
    for number in (-1, 1 << 32, 1 << 70, "1", None):
        with pytest.raises((HummockError, OverflowError, TypeError, ValueError, AttributeError)):
            user_key(number, 0, b"")
        with pytest.raises((HummockError, OverflowError, TypeError, ValueError)):
            lab.store.commit(at(2), tables={number: TableRules()})
        with pytest.raises((HummockError, OverflowError, TypeError, ValueError)):
            lab.store.commit(at(2), dropped_tables=[number])
    for epoch in (-1, 1 << 64, 1 << 70, "1"):
        with pytest.raises((HummockError, OverflowError, TypeError)):
            lab.store.get(b"a", epoch)
    for epoch in (-1, 1 << 64, 1 << 70, "1", None):
        with pytest.raises((HummockError, OverflowError, TypeError)):
            lab.store.commit(epoch)
    for value in (pa.array([1, 2]), 5, None, b"a"):
        with pytest.raises((HummockError, TypeError, ValueError)):
            lab.store.get_many(value, at(1))
    for name, value in (("codec", "pickle"), ("filter_policy", ""), ("block_bytes", 0), ("block_bytes", 1 << 40),
                        ("scan_batch_bytes", 1 << 31), ("refresh_ms", -1), ("shared_buffer_bytes", "1")):
        with pytest.raises((HummockError, TypeError)):
            StorageOptions(**{name: value})
    assert dict(lab.meta.list("")) == before and lab.rows(1) == [(b"a", b"1")]
    lab.close()
