"""`write`: batches of many threads share epochs and commits; each caller learns of its own batch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.epoch import EpochGenerator, to_unix_ms, wall_clock_ms
from hummock.errors import Fenced, ObjectStoreError, OutcomeUnknown, RoleMissing, StoreClosed
from hummock.store.group_commit import GroupCommit

WRITERS = 8


def key(number: int) -> bytes:
    return hummock.user_key(1, 0, b"%06d" % number)


class Commits:
    """Records the epochs; `gate` lets commits end, `failures` are those of commits, by number."""

    def __init__(self) -> None:
        self.sealed, self.written, self.failures, self.committed = 0, {}, {}, []
        self.gate, self.begun = threading.Event(), threading.Semaphore(0)
        self.gate.set()
        self.group = GroupCommit(self.ingest, self.commit, lambda: self.sealed)

    def ingest(self, batch, epoch):
        if batch == "refused":
            raise hummock.errors.SharedBufferFull(1, 1)
        self.written.setdefault(epoch, []).append(batch)

    def commit(self, epoch):
        self.begun.release()
        assert self.gate.wait(30)
        self.sealed = epoch
        self.committed.append(epoch)
        if (error := self.failures.get(len(self.committed))) is not None:
            raise error


@pytest.fixture
def commits():
    return Commits()


def test_those_that_come_during_a_commit_share_the_next_one(commits):
    commits.gate.clear()
    with ThreadPoolExecutor(WRITERS) as threads:
        first = threads.submit(commits.group.write, "first")
        commits.begun.acquire()
        later = []
        for number in range(1, WRITERS):
            later.append(threads.submit(commits.group.write, number))
            while len(getattr(commits.group._open, "batches", ())) < number:
                pass                                    # so that they arrive in this order
        commits.gate.set()
        epochs = {each.result(30) for each in later}
    assert len(epochs) == 1 and [first.result(), *epochs] == commits.committed
    assert commits.written[epochs.pop()] == list(range(1, WRITERS))


def test_a_batch_that_is_refused_fails_its_own_caller_only(commits):
    commits.gate.clear()
    with ThreadPoolExecutor(3) as threads:
        threads.submit(commits.group.write, "first")
        commits.begun.acquire()
        refused, accepted = threads.submit(commits.group.write, "refused"), threads.submit(commits.group.write, "x")
        while len(getattr(commits.group._open, "batches", ())) < 2:
            pass
        commits.gate.set()
        assert accepted.result(30) == commits.committed[-1]
        with pytest.raises(hummock.errors.SharedBufferFull):
            refused.result(30)
    with pytest.raises(hummock.errors.SharedBufferFull):
        commits.group.write("refused")
    assert len(commits.committed) == 2, "what nobody wrote is not committed"


@pytest.mark.parametrize("error", [ObjectStoreError("x", "injected"), KeyboardInterrupt()], ids=["store", "interrupt"])
def test_a_failed_commit_is_raised_in_every_caller_and_the_next_one_works(commits, error):
    commits.gate.clear()
    commits.failures[2] = error
    with ThreadPoolExecutor(3) as threads:
        threads.submit(commits.group.write, "first")
        commits.begun.acquire()
        calls = [threads.submit(commits.group.write, number) for number in range(2)]
        while len(getattr(commits.group._open, "batches", ())) < 2:
            pass
        commits.gate.set()
        raised = {type(each.exception(30)) for each in calls}
    assert raised == {type(error)} | (set() if isinstance(error, Exception) else {OutcomeUnknown})
    assert commits.group.write("again") == commits.committed[-1]


def test_epochs_follow_the_clock_and_never_repeat(commits):
    epochs = [commits.group.write(number) for number in range(200)]
    assert epochs == sorted(set(epochs)) and to_unix_ms(epochs[-1]) <= wall_clock_ms() + 1
    ahead = EpochGenerator(lambda: wall_clock_ms() + 3_600_000).next()
    commits.sealed = ahead
    assert commits.group.write("x") > ahead


def test_what_many_threads_write_is_there_after_reopening(tmp_path):
    url, each = f"file://{tmp_path}/store", 40
    with hummock.open(url, role="writer", compaction=False) as store:
        before = store.version.id

        def write(writer: int) -> list[int]:
            return [store.write(WriteBatch([(key(writer * each + number), b"%d" % number)])) for number in range(each)]

        with ThreadPoolExecutor(WRITERS) as threads:
            epochs = list(threads.map(write, range(WRITERS)))
        assert all(found == sorted(found) for found in epochs)
        shared = {epoch for found in epochs for epoch in found}
        assert len(shared) < WRITERS * each and store.version.id - before == len(shared)
    with hummock.open(url) as reader:
        assert reader.committed_epoch == max(shared)
        rows = list(reader.scan(hummock.KeyRange.table(1), reader.committed_epoch))
    assert rows == [(key(number), b"%d" % (number % each)) for number in range(WRITERS * each)]


def test_of_writes_of_one_key_each_is_seen_after_its_call(tmp_path):
    with hummock.open(f"file://{tmp_path}/store", role="writer") as store:
        for number in range(20):
            epoch = store.write(WriteBatch([(key(0), b"%d" % number)]))
            assert store.get(key(0), epoch) == b"%d" % number
        assert store.get(key(0), store.write(WriteBatch([(key(0), None)]))) is None


def test_rows_of_older_epochs_are_committed_too(tmp_path):
    url = f"file://{tmp_path}/store"
    with hummock.open(url, role="writer") as store:
        store.ingest_batch(WriteBatch([(key(1), b"older")]), EpochGenerator(last=store.committed_epoch).next())
        store.write(WriteBatch([(key(2), b"x")]))
    with hummock.open(url) as reader:
        assert reader.get(key(1), reader.committed_epoch) == b"older"


def test_only_the_writer_may_write(tmp_path):
    url, batch = f"file://{tmp_path}/store", WriteBatch([(key(1), b"x")])
    former = hummock.open(url, role="writer", compaction=False)
    former.write(batch)
    with hummock.open(url) as reader, pytest.raises(RoleMissing):
        reader.write(batch)
    with hummock.open(url, role="writer", compaction=False) as newer:
        for _ in range(2):
            with pytest.raises(Fenced):
                former.write(batch)
        newer.write(batch)
    former.close()
    with pytest.raises(StoreClosed):
        former.write(batch)
