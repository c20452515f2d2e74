"""The WebHDFS store against a fake server: pip cannot install a real one."""

import pytest

from hummock.errors import ObjectStoreError, ObjectStoreRefused
from hummock.metrics import Metrics
from hummock.object_store.conditional_put_check import require_exclusive_creation
from hummock.object_store.http import Answer
from hummock.object_store.url import parse_address
from hummock.object_store.webhdfs import TEMPORARY, WebHdfsObjectStore, _raise_for
from hummock.options import RetryOptions
from tests.support.drivers.forks import outcomes_in_a_child
from tests.support.servers.webhdfs_double import webhdfs_double
from tests.support.suites.object_store_suite import ObjectStoreSuite


@pytest.fixture
def tree(double):
    return double[1]


@pytest.fixture
def double():
    with webhdfs_double() as running:
        yield running


@pytest.fixture
def store(double):
    address = parse_address(f"webhdfs://{double[0]}/some/prefix?user_name=me")
    store = WebHdfsObjectStore(address, RetryOptions(), Metrics())
    yield store
    store.close()


class TestWebHdfsObjectStore(ObjectStoreSuite):
    pass


def test_a_log_may_be_in_it(store):
    require_exclusive_creation(store)
    assert list(store.list()) == []


def test_an_object_is_staged_and_nothing_stays_behind(store, tree):
    store.put("sst/a", b"1", if_absent=True)
    with pytest.raises(ObjectStoreError):
        store.put("sst/a", b"2", if_absent=True)
    assert tree.nodes["/some/prefix/sst/a"] == b"1"
    assert [path for path in tree.nodes if f"{TEMPORARY}/" in path] == []


@pytest.mark.parametrize(("status", "body", "kind"), [
    (403, b'{"RemoteException": {"exception": "AccessControlException", "message": "no"}}', ObjectStoreRefused),
    (403, b'{"RemoteException": {"exception": "StandbyException", "message": "no"}}', ObjectStoreError),
    (500, b"<html>", ObjectStoreError), (502, b"", ObjectStoreError), (400, b"[]", ObjectStoreError),
])
def test_each_answer_is_typed(status, body, kind):
    with pytest.raises(ObjectStoreError) as caught:
        _raise_for("a", Answer(status, {}, body, len(body)))
    assert type(caught.value) is kind


def test_a_fork_opens_connections_of_its_own(store):
    def sockets():
        pools = store._http._pool.pools
        idle = [connection for host in pools.keys() for connection in pools[host].pool.queue]     # noqa: SIM118
        return {connection.sock.getsockname() for connection in idle if connection is not None}

    def read():
        assert store.get("a") == b"1" and sockets() and not sockets() & parent

    store.put("a", b"1")
    parent = sockets()
    assert parent and outcomes_in_a_child({"read": read}) == {"read": ""}
    assert store.get("a") == b"1" and sockets() == parent
