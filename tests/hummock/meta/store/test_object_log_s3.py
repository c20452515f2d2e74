"""The log in a real bucket: the suite, a store whose metadata and data share one URL, and request counts."""

import subprocess
import sys

import pytest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import Fenced, MetaStoreError
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.object_log import ObjectLogMetaStore
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from tests.support.suites.meta_store_suite import MetaStoreSuite, put

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

pytestmark = pytest.mark.s3

COUNTER = """
import sys
from hummock.errors import PreconditionFailed
from hummock.meta import open_meta_store
from hummock.meta.store.base import MetaOperations
store = open_meta_store(sys.argv[1])
done = 0
while done < 5:
    value = store.get("n")
    try:
        store.transaction(MetaOperations(require={"n": value}, put={"n": b"%d" % (int(value) + 1)}))
        done += 1
    except PreconditionFailed:
        pass
store.close()
"""


@pytest.fixture
def url(s3_url):
    return s3_url


class TestObjectLogOnS3(MetaStoreSuite):
    @pytest.fixture
    def store(self, url):
        objects = open_object_store(url)
        store = ObjectLogMetaStore(objects, on_close=objects.close)
        yield store
        store.close()


def test_processes_that_compete_lose_no_step(url):
    objects = open_object_store(url)
    store = ObjectLogMetaStore(objects, on_close=objects.close)
    store.transaction(put(n=b"0"))
    children = [subprocess.Popen([sys.executable, "-c", COUNTER, url]) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert store.get("n") == b"15"
    store.close()


def test_a_commit_is_a_look_at_the_identity_and_one_write_to_the_bucket(url):
    metrics = Metrics()
    objects = open_object_store(url, metrics=metrics)
    store = ObjectLogMetaStore(objects, on_close=objects.close)
    store.transaction(put(a=b"0"))

    def requests():
        family, = (one for one in metrics.registry.collect() if one.name == "hummock_object_store_requests")
        return {sample.labels["request"]: sample.value for sample in family.samples if sample.name.endswith("_total")}

    before = requests()
    for number in range(10):
        store.transaction(MetaOperations(require={"a": b"%d" % number}, put={"a": b"%d" % (number + 1)}))
    made = {name: value - before.get(name, 0) for name, value in requests().items() if value != before.get(name, 0)}
    print(f"10 commits: {made}")
    assert made == {"GetObject": 10, "PutObject": 10}
    store.close()


def test_a_bucket_alone_is_a_store(url):
    e1, e2, e3 = (hummock.Epoch(number << 16) for number in (1, 2, 3))
    with pytest.raises(MetaStoreError, match="no store"):
        hummock.open(url)
    shape = hummock.CompactionOptions(history_ms=1 << 40)
    with hummock.open(url, role="writer", compaction=shape) as writer, hummock.open(url, refresh_ms=10) as reader:
        for epoch, value in ((e1, b"one"), (e2, b"two")):
            writer.ingest_batch(WriteBatch([(b"key", value)]), epoch)
            writer.commit(epoch)
            reader.wait_epoch(epoch)
            assert reader.get(b"key", epoch) == value
        with hummock.open(url, role="writer", compaction=shape) as successor:
            successor.ingest_batch(WriteBatch([(b"key", b"three")]), e3)
            successor.commit(e3)
            writer.ingest_batch(WriteBatch([(b"key", b"never")]), e3)
            with pytest.raises(Fenced):
                writer.commit(e3)
    with hummock.open(url) as reader:
        assert [reader.get(b"key", epoch) for epoch in (e1, e2, e3)] == [b"one", b"two", b"three"]
