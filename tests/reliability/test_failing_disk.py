"""ENOSPC and EIO at every file call of an opening, a commit, a compaction and a vacuum: nothing is lost.

The calls fail below Python, so that SQLite and compiled modules see the faults as well, in reads too.
"""

from __future__ import annotations

import errno
import shutil
from collections import Counter

import pytest

from tests.hummock.object_store.test_local_disk import FOREVER, NUMBERS
from tests.reliability import failing_cycle
from tests.reliability.children import can_compile, started
from tests.support.drivers.quick_files import quick_directory

pytestmark = [pytest.mark.skipif(not can_compile(), reason="needs Linux and a C compiler")]
META = ("log", None)            # None: SQLite


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with started(tmp_path_factory.mktemp("file_calls")) as children:
        yield children


def sweep(children, meta, number, times, step, first=1):
    """Counts of errors in all cycles with a failing call, and of the first failing calls by letter."""
    refused, hit = Counter(), Counter()
    work = f"{failing_cycle.__name__}:"
    with quick_directory() as directory:
        base, root = directory / "base", directory / "store"
        base.mkdir()
        children.run(work + "prepare", base, meta=meta).value()
        at = first
        while True:
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(base, root)
            end = children.run(work + "work_under_faults", root, kill_at=at, fail_with=number, times=times, meta=meta)
            assert not end.error, f"call {at} fails with {errno.errorcode[number]}, {times} times, {meta}\n{end.error}"
            refused.update(end.value())
            if len(end.calls) < at:
                return refused, hit
            hit[end.calls[at - 1]] += 1
            at += step


@pytest.mark.parametrize("meta", META)
@pytest.mark.parametrize(("number", "times", "first"), [(errno.ENOSPC, FOREVER, 2), (errno.EIO, 1, 7)],
                         ids=["full for ever", "EIO once"])
def test_some_failing_file_calls_lose_nothing(children, meta, number, times, first):
    refused, hit = sweep(children, meta, number, times, 47, first)
    assert hit.total() >= 4, hit
    assert times == 1 or len({name.split(":")[0] for name in refused}) >= 2, refused


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("meta", META)
@pytest.mark.parametrize("times", [1, FOREVER], ids=["once", "for ever"])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_no_failing_file_call_loses_anything(children, meta, number, times):
    refused, hit = sweep(children, meta, number, times, 1)
    print(dict(hit), dict(refused))
    assert hit.total() >= 200 and set(hit) >= set("cwsuROl")
