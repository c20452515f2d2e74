"""[P5]: writers killed while their server fails in every honest way leave each acknowledged epoch complete."""

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hummock.errors import StoreNotFound
from tests.reliability.faulty_child import META, RETRY
from tests.reliability.faulty_store import COLD, Scenario, StoreLocation, meta_at
from tests.support.servers.fault_proxy import HONEST, fault_proxy
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

ROOT = Path(__file__).resolve().parents[2]
KILLS_OF_A_STORE = 20
KILLS_LIMIT = 8
LONGEST_LIFE_MS = 3_000


@pytest.fixture(scope="module")
def server():
    with s3_server() as upstream, fault_proxy(upstream) as running:
        yield upstream, running


@pytest.fixture
def children(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with subprocess.Popen([sys.executable, "-m", "tests.reliability.faulty_child"], cwd=ROOT, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def run(**job):
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()
        process.wait(30)


def mixed(rng, percent=25):
    """A plan that fails `percent` of the requests, each by a random honest fault."""
    return lambda request: rng.choice(HONEST) if rng.randrange(100) < percent else None


def committed(location, seed):
    """The number of the committed epoch, after checking all reads without the proxy; 0 if there is no store yet."""
    try:
        with location.open("reader", RETRY, direct=True, meta=META, **COLD) as reader:
            Scenario.check_reads(reader, seed)
            return reader.committed_epoch >> 16
    except StoreNotFound:
        return 0


def kill_often(server, children, tmp_path, seed, kills, meta, *, faults, epochs, kinds=1):
    """Kills the writer of a store at least `kills` times and checks the store after each.

    How much a writer does before it is killed depends on the machine: kills continue, up to `KILLS_LIMIT` times as
    many with longer lives in each round, until enough faults, kinds of faults and epochs were seen.
    """
    upstream, proxy = server
    rng, done = random.Random(seed), Counter()
    bucket = make_bucket(upstream)
    location = StoreLocation(bucket, proxy.endpoint, upstream, meta_at(meta, tmp_path))
    proxy.injected.clear()
    proxy.plan = mixed(random.Random(seed))
    known = 0

    def is_enough(number):
        seen = proxy.injected
        return number >= kills and seen.total() >= faults and len(seen) >= kinds and known >= epochs

    for number in range(kills * KILLS_LIMIT):
        if is_enough(number):
            break
        end = children(bucket=bucket, proxied=proxy.endpoint, direct=upstream, meta=location.meta, seed=seed,
                       kill_after_ms=rng.randrange(100, LONGEST_LIFE_MS) * (1 + number // kills))
        assert not end["error"], end
        said = [note.split() for note in end["notes"]]
        acked = max([known, *(int(what) for word, what in said if word in ("open", "acked"))])
        begun = max([acked, *(int(what) for word, what in said if word == "begun")])
        known = committed(location, seed)
        assert acked <= known <= begun, f"kill {number} of seed {seed}: epoch {known} after {end['notes']}"
        done.update(word for word, _ in said)
    proxy.plan = lambda request: None
    assert location.damages() == []
    print(f"seed {seed}, {meta}: epoch {known}, {dict(done)}, {dict(proxy.injected)}")
    assert is_enough(kills)


def test_a_few_kills_under_faults_lose_nothing(server, children, tmp_path):
    kill_often(server, children, tmp_path, 31, 5, "log", faults=20, epochs=1)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("meta", ["log", "sqlite"])
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_kills_under_faults_lose_nothing(server, children, tmp_path, seed, meta):
    kill_often(server, children, tmp_path, 300 + seed, KILLS_OF_A_STORE, meta, faults=200,
               epochs=KILLS_OF_A_STORE // 2, kinds=len(HONEST))
