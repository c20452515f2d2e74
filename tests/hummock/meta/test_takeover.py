"""Two writers on one store, in processes that are frozen or killed: the older one never matters again.

The truth is in SQLite, in the log among the objects, or in PostgreSQL where a server is installed.
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

# A log that forgets within half a second, and databases that give a frozen process up in less.
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
truth = open_meta_store("file://" + directory, meta, options=options)
manager = HummockManager(truth, LocalObjectStore(directory), options=options)
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
    """A place of the same kind that holds nothing yet."""
    server, is_database, _ = meta.partition("?schema=")
    return f"{server}?schema=takeover_{next(SCHEMAS)}" if is_database else meta


class Place:
    """A directory and where its truth is."""

    def __init__(self, directory, meta):
        directory.mkdir(exist_ok=True)
        self.directory, self.meta = directory, meta

    def start(self, seed):
        """A writer in a process of its own, which has claimed the role."""
        options = str(OPTIONS).replace("'", '"')
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(self.directory), self.meta, str(seed), options],
                                   text=True, stdout=subprocess.PIPE,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        assert process.stdout.readline().startswith("claimed")
        return process

    def truth(self):
        return open_meta_store(f"file://{self.directory}", self.meta, options=MetaOptions(**OPTIONS))

    def manager(self, truth):
        return HummockManager(truth, LocalObjectStore(self.directory), options=MetaOptions(**OPTIONS))

    def take_over(self):
        """The successor's manager, session and truth; MetaStoreBusy where the frozen one stands in the way."""
        with ExitStack() as undo:
            truth = undo.enter_context(closing(self.truth()))
            manager = self.manager(truth)
            session = manager.claim_writer("successor")
            undo.pop_all()
        return manager, session, truth


def read_until(process, count):
    """Lines of the writer until it has committed `count` times."""
    lines = []
    while sum(line.startswith("committed") for line in lines) < count:
        lines.append(process.stdout.readline())
    return lines


def read_rest(process):
    """What the writer said until it ended; by its own stream, which may have read ahead."""
    with process.stdout:
        lines = process.stdout.read().splitlines()
    process.wait(30)
    return lines


def named(lines, verb):
    return [line.split()[2] for line in lines if line.startswith(verb)]


def freeze_and_take_over(place, seed):
    """One writer is stopped at some instant, another commits for a while, the first one wakes."""
    rng, process = random.Random(seed), place.start(seed)
    lines = read_until(process, rng.randrange(1, 25))
    process.send_signal(signal.SIGSTOP)
    began, was_busy, taken = time.monotonic(), False, None
    while taken is None and time.monotonic() - began < BOUND_SECONDS:
        try:
            taken = place.take_over()
        except MetaStoreBusy:       # frozen inside its transaction: each try ends in time and says why
            assert place.meta != "log", seed
            was_busy = True
            if place.meta == "sqlite:":     # a server gives a frozen client up, a file cannot
                process.send_signal(signal.SIGCONT)
    manager, session, truth = taken
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
    with closing(place.truth()) as again:
        assert set(names_of(place.manager(again).version)) == names, seed
    truth.close()
    return was_busy


@pytest.mark.parametrize("seed", range(2))
def test_a_frozen_writer_is_fenced_when_it_wakes(tmp_path, meta, seed):
    freeze_and_take_over(Place(tmp_path, meta), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150, 5))
def test_fifty_frozen_writers_are_fenced_when_they_wake(tmp_path, meta, seed):
    busy = 0
    for number in range(seed, seed + 5):
        own = another(meta)
        busy += freeze_and_take_over(Place(tmp_path / str(number), own), number)
    print(f"seeds {seed} to {seed + 4}: {busy} were frozen inside their transaction")


def test_killed_writers_lose_at_most_the_commit_under_way(tmp_path, meta):
    rng, acknowledged, tried, place = random.Random(7), [], set(), Place(tmp_path, meta)
    for round_number in range(3):
        process = place.start(round_number)
        lines = read_until(process, rng.randrange(1, 30))
        process.kill()
        lines += read_rest(process)
        acknowledged += named(lines, "committed")
        tried |= set(named(lines, "trying"))
        with closing(place.truth()) as truth:
            names = set(names_of(place.manager(truth).version))
        assert set(acknowledged) <= names <= tried
        assert len(names) <= len(acknowledged) + 1
        acknowledged = sorted(names)


def two_sessions(place, seed, steps=40):
    """Two managers claim and commit in a random order, some answers are lost: the last claimant's commits count."""
    rng, plan = random.Random(seed), FaultPlan()
    files, acknowledged, holder, number, fenced = Files(seed), set(), None, 0, 0
    with ExitStack() as undo:
        truths = [undo.enter_context(closing(place.truth())) for _ in range(2)]
        managers = [open_manager(FaultyMetaStore(truth, plan), seed=f"{seed} {who}")
                    for who, truth in enumerate(truths)]
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
    with closing(place.truth()) as truth:
        assert set(names_of(open_manager(truth).version)) == acknowledged, seed
    return len(acknowledged), fenced


@pytest.mark.parametrize("seed", range(3))
def test_of_two_sessions_only_the_last_claimants_commits_count(tmp_path, meta, seed):
    committed, fenced = two_sessions(Place(tmp_path, meta), seed)
    assert committed and fenced


@pytest.mark.slow
def test_fifty_cases_of_two_sessions(tmp_path, meta):
    for seed in range(200, 250):
        own = another(meta)
        committed, fenced = two_sessions(Place(tmp_path / str(seed), own), seed)
        assert committed + fenced > 10, seed
