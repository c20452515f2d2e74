"""Two writers on one store, in processes that are frozen or killed: the older one stays fenced.

The metadata is in SQLite, in the object log, or in PostgreSQL where a server is installed.
"""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest

from hummock.errors import Fenced, MetaStoreBusy
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.local import LocalObjectStore
from hummock.options import MetaOptions
from tests.support.servers.meta_store_faults import FaultyMetaStore
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan
from tests.support.worlds.manager_parts import Files, epoch_of, names_of, open_manager

# The log deletes old records within half a second; databases give up on a frozen process sooner.
OPTIONS = {"busy_timeout_ms": 300, "log_grace_ms": 400, "log_checkpoint_records": 4}
BOUND_SECONDS = 10
WRITER = """
import json, sys
from hummock.errors import Fenced
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.local import LocalObjectStore
from hummock.options import MetaOptions
from tests.support.worlds.manager_parts import Files, epoch_of

directory, meta, seed, options = sys.argv[1:]
options = MetaOptions(**{**json.loads(options), "busy_timeout_ms": 5_000})
meta_store = open_meta_store("file://" + directory, meta, options=options)
manager = HummockManager(meta_store, LocalObjectStore(directory), options=options)
session, files = manager.claim_writer(), Files(seed)
number = manager.committed_epoch >> 16
print("claimed", session.generation, flush=True)
try:
    while True:
        number += 1
        info = files.make(number)
        print("trying", number, info.name, flush=True)
        manager.commit_epoch(session, epoch_of(number), [info])
        print("committed", number, info.name, flush=True)
except Fenced:
    print("fenced", flush=True)
"""
SCHEMAS = itertools.count()


@pytest.fixture(params=["sqlite:", "log", "postgresql"])
def meta(request):
    if request.param == "postgresql":
        return f"{request.getfixturevalue('postgres_server')}?schema=takeover_{next(SCHEMAS)}"
    return request.param


def another(meta):
    """The URL of an empty meta store of the same kind."""
    server, is_database, _ = meta.partition("?schema=")
    return f"{server}?schema=takeover_{next(SCHEMAS)}" if is_database else meta


class Store:
    """A store in a directory, and the URL of its meta store."""

    def __init__(self, directory, meta):
        directory.mkdir(exist_ok=True)
        self.directory, self.meta = directory, meta

    def start(self, seed):
        """Starts a writer process and waits until it has claimed the role."""
        options = str(OPTIONS).replace("'", '"')
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(self.directory), self.meta, str(seed), options],
                                   text=True, stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert process.stdout.readline().startswith("claimed")
        return process

    def meta_store(self):
        return open_meta_store(f"file://{self.directory}", self.meta, options=MetaOptions(**OPTIONS))

    def manager(self, meta_store):
        return HummockManager(meta_store, LocalObjectStore(self.directory), options=MetaOptions(**OPTIONS))

    def take_over(self):
        """The successor's manager, session and meta store; MetaStoreBusy while the frozen process holds a lock."""
        with ExitStack() as undo:
            meta_store = undo.enter_context(closing(self.meta_store()))
            manager = self.manager(meta_store)
            session = manager.claim_writer("successor")
            undo.pop_all()
        return manager, session, meta_store


def read_until(process, count):
    """Lines of the writer until it has committed `count` times."""
    lines = []
    while sum(line.startswith("committed") for line in lines) < count:
        lines.append(process.stdout.readline())
    return lines


def read_rest(process):
    """The rest of the writer's output, read from its own stream, which may have read ahead; without a last line that a
    kill has cut short: what it would have said was not begun, or not acknowledged."""
    with process.stdout:
        lines = process.stdout.read().splitlines(keepends=True)
    process.wait(30)
    return [line.removesuffix("\n") for line in lines if line.endswith("\n")]


def named(lines, verb):
    return [line.split()[2] for line in lines if line.startswith(verb)]


def freeze_and_take_over(store, seed):
    """Stops one writer at a random moment, commits from a successor, then resumes the first."""
    rng, process = random.Random(seed), store.start(seed)
    lines = read_until(process, rng.randrange(1, 25))
    process.send_signal(signal.SIGSTOP)
    began, was_busy, taken = time.monotonic(), False, None
    while taken is None and time.monotonic() - began < BOUND_SECONDS:
        try:
            taken = store.take_over()
        except MetaStoreBusy:       # frozen inside its transaction: each attempt fails in time
            assert store.meta != "log", seed
            was_busy = True
            if store.meta == "sqlite:":     # a server drops a frozen client, SQLite cannot
                process.send_signal(signal.SIGCONT)
    manager, session, meta_store = taken
    assert time.monotonic() - began < BOUND_SECONDS, seed
    first = (manager.committed_epoch >> 16) + 5
    files, mine = Files(f"successor {seed}"), set()
    for number in range(first, first + rng.choice([1, 1, 30])):
        info = files.make(number)
        manager.commit_epoch(session, epoch_of(number), [info])
        mine.add(info.name)
    process.send_signal(signal.SIGCONT)
    rest = read_rest(process)
    assert rest[-1] == "fenced", seed
    committed = [*named(lines, "committed"), *named(rest, "committed")]
    tried = [*named(lines, "trying"), *named(rest, "trying")]
    names = set(names_of(manager.refresh()))
    assert mine <= names and names - mine <= set(tried), seed
    assert set(committed) <= names, seed
    assert len(names - mine) <= len(committed) + 1, seed
    assert tried[-1] not in names, seed
    with closing(store.meta_store()) as again:
        assert set(names_of(store.manager(again).version)) == names, seed
    meta_store.close()
    return was_busy


@pytest.mark.parametrize("seed", range(2))
def test_a_frozen_writer_is_fenced_when_it_wakes(tmp_path, meta, seed):
    freeze_and_take_over(Store(tmp_path, meta), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150, 5))
def test_fifty_frozen_writers_are_fenced_when_they_wake(tmp_path, meta, seed):
    busy = 0
    for number in range(seed, seed + 5):
        own = another(meta)
        busy += freeze_and_take_over(Store(tmp_path / str(number), own), number)
    print(f"seeds {seed} to {seed + 4}: {busy} were frozen inside their transaction")


def test_killed_writers_lose_at_most_the_commit_under_way(tmp_path, meta):
    rng, acknowledged, tried, store = random.Random(7), [], set(), Store(tmp_path, meta)
    for round_number in range(3):
        process = store.start(round_number)
        lines = read_until(process, rng.randrange(1, 30))
        process.kill()
        lines += read_rest(process)
        acknowledged += named(lines, "committed")
        tried |= set(named(lines, "trying"))
        with closing(store.meta_store()) as meta_store:
            names = set(names_of(store.manager(meta_store).version))
        assert set(acknowledged) <= names <= tried
        assert len(names) <= len(acknowledged) + 1
        acknowledged = sorted(names)


def two_sessions(store, seed, steps=40):
    """Two managers claim and commit in random order, some responses are lost: the last claimant's commits count."""
    rng, plan = random.Random(seed), FaultPlan()
    files, acknowledged, holder, number, fenced = Files(seed), set(), None, 0, 0
    with ExitStack() as undo:
        meta_stores = [undo.enter_context(closing(store.meta_store())) for _ in range(2)]
        managers = [open_manager(FaultyMetaStore(meta_store, plan), seed=f"{seed} {who}")
                    for who, meta_store in enumerate(meta_stores)]
        sessions = [manager.claim_writer(f"node-{who}") for who, manager in enumerate(managers)]
        holder = 1
        for _ in range(steps):
            who = rng.randrange(2)
            if rng.random() < .2:
                plan.add(Fault(rng.choice([FaultKind.AFTER, FaultKind.TORN]), "transaction"))
            if rng.random() < .2:
                sessions[who], holder = managers[who].claim_writer(f"node-{who}"), who
                continue
            number += rng.randrange(1, 3)
            info = files.make(number)
            try:
                version = managers[who].commit_epoch(sessions[who], epoch_of(number), [info])
                assert who == holder and info.name in names_of(version), seed
                acknowledged.add(info.name)
            except Fenced as error:
                assert who != holder and error.held < error.current, seed
                fenced += 1
        plan.clear()
        for manager in managers:
            assert set(names_of(manager.refresh())) == acknowledged, seed
    with closing(store.meta_store()) as meta_store:
        assert set(names_of(open_manager(meta_store).version)) == acknowledged, seed
    return len(acknowledged), fenced


@pytest.mark.parametrize("seed", range(3))
def test_of_two_sessions_only_the_last_claimants_commits_count(tmp_path, meta, seed):
    committed, fenced = two_sessions(Store(tmp_path, meta), seed)
    assert committed and fenced


@pytest.mark.slow
def test_fifty_cases_of_two_sessions(tmp_path, meta):
    for seed in range(200, 250):
        own = another(meta)
        committed, fenced = two_sessions(Store(tmp_path / str(seed), own), seed)
        assert committed + fenced > 10, seed
