import os
import random
import threading

import pytest

from hummock.errors import (
    DeadlineExceeded,
    InvalidOption,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
    UploadLost,
)
from hummock.metrics import Metrics
from hummock.object_store import open_object_store
from hummock.object_store.conditional_put_check import require_exclusive_creation
from hummock.object_store.s3 import KEYS_AT_ONCE, STALE_UPLOAD_MS, S3ObjectStore
from hummock.object_store.s3_client import typed_error
from hummock.object_store.url import parse_address
from hummock.options import MIB, RetryOptions
from tests.support.drivers.forks import held_by_a_thread, outcomes_in_a_child
from tests.support.servers.s3_server import ENVIRONMENT
from tests.support.suites.object_store_suite import ObjectStoreSuite

PART = 5 * MIB


@pytest.fixture
def url(s3_url):
    return s3_url


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def store(url, metrics):
    store = S3ObjectStore(parse_address(url), RetryOptions(), metrics, part_bytes=PART)
    yield store
    store.close()


def requests(metrics, name):
    return metrics.registry.get_sample_value("hummock_object_store_requests_total", {"request": name}) or 0


def moved(metrics, name, direction):
    labels = {"request": name, "direction": direction}
    return metrics.registry.get_sample_value("hummock_object_store_request_bytes_total", labels) or 0


class Spy:
    """Wraps a client's `call`: raises `before[operation]` errors before it, `after[operation]` errors after it."""

    def __init__(self, client, monkeypatch):
        self.calls, self.after, self.before = [], {}, {}
        real = client.call

        def call(operation, path, seconds, **parameters):
            self.calls.append(operation)
            if self.before.get(operation):
                raise self.before[operation].pop()
            answer = real(operation, path, seconds, **parameters)
            if self.after.get(operation):
                raise self.after[operation].pop()
            return answer

        monkeypatch.setattr(client, "call", call)


class TestS3ObjectStore(ObjectStoreSuite):
    pass


class TestStreaming:
    def test_large_objects_go_in_parts_of_one_size(self, store, metrics):
        data = random.Random(1).randbytes(2 * PART + 1000)
        with store.create("sst/a") as writer:
            for start in range(0, len(data), 700_001):
                writer.write(data[start:start + 700_001])
        assert store.get("sst/a") == data
        assert requests(metrics, "UploadPart") == 3
        assert moved(metrics, "UploadPart", "sent") == len(data)
        assert requests(metrics, "PutObject") == 0

    def test_one_write_may_be_many_parts(self, store):
        data = random.Random(2).randbytes(2 * PART + 7)
        with store.create("a") as writer:
            writer.write(b"begin")
            writer.write(memoryview(data))
        assert store.get("a") == b"begin" + data

    def test_what_fits_one_part_is_one_request(self, store, metrics):
        with store.create("a") as writer:
            writer.write(b"small")
        assert requests(metrics, "PutObject") == 1 and requests(metrics, "CreateMultipartUpload") == 0

    def test_a_streamed_object_never_replaces(self, store):
        with pytest.raises(ObjectExists), store.create("a") as writer:
            writer.write(bytes(PART))
            store.put("a", b"theirs")
        assert store.get("a") == b"theirs"
        assert store.client.call("list_multipart_uploads", "", 10).get("Uploads", []) == []

    def test_an_aborted_upload_leaves_no_parts(self, store):
        writer = store.create("a")
        writer.write(bytes(PART))
        assert len(store.client.call("list_multipart_uploads", "", 10)["Uploads"]) == 1
        writer.abort()
        assert store.client.call("list_multipart_uploads", "", 10).get("Uploads", []) == []

    def test_uploads_of_the_dead_are_removed_and_young_ones_stay(self, store):
        writer = store.create("a")
        writer.write(bytes(PART))
        (begun,) = store.client.call("list_multipart_uploads", "", 10)["Uploads"]
        begun_ms = int(begun["Initiated"].timestamp() * 1000)
        assert store.remove_leftovers(begun_ms + 1000, kept_ms=2000) == 0
        assert store.remove_leftovers(begun_ms + 3000, kept_ms=2000) == 1
        assert store.client.call("list_multipart_uploads", "", 10).get("Uploads", []) == []

    def test_the_instrumented_store_removes_uploads_of_the_dead(self, store, url):
        store.create("a").write(bytes(PART))
        (begun,) = store.client.call("list_multipart_uploads", "", 10)["Uploads"]
        begun_ms = int(begun["Initiated"].timestamp() * 1000)
        opened = open_object_store(url)
        assert opened.remove_leftovers(begun_ms + STALE_UPLOAD_MS) == 0
        assert opened.remove_leftovers(begun_ms + STALE_UPLOAD_MS + 1000) == 1
        opened.close()

    def test_an_upload_that_was_removed_is_lost(self, store, monkeypatch):
        spy = Spy(store.client, monkeypatch)
        spy.before["complete_multipart_upload"] = [UploadLost("a", "NoSuchUpload")]
        with pytest.raises(UploadLost), store.create("a") as writer:
            writer.write(bytes(PART))
        assert spy.calls[-1] == "abort_multipart_upload"
        assert list(store.list()) == []

    def test_a_failed_write_took_nothing_and_may_be_repeated(self, store, monkeypatch):
        spy = Spy(store.client, monkeypatch)
        data = random.Random(3).randbytes(2 * PART + 100)
        for when in (spy.before, spy.after):
            when["upload_part"] = [ObjectStoreError("a", "reset")]
            writer = store.create("a", if_absent=False)
            writer.write(b"x")
            with pytest.raises(ObjectStoreError):
                writer.write(data)
            writer.write(data)
            writer.close()
            assert store.get("a") == b"x" + data

    @pytest.mark.parametrize("operation", ["put_object", "complete_multipart_upload", "upload_part"])
    def test_a_close_whose_answer_was_lost_knows_its_object(self, store, monkeypatch, operation):
        spy = Spy(store.client, monkeypatch)
        spy.after[operation] = [ObjectStoreError("a", "reset")]
        writer = store.create("a")
        if operation != "put_object":
            writer.write(bytes(PART - 1))
            spy.after[operation], kept = [], spy.after[operation]
            writer.write(b"12")
            spy.after[operation] = kept
        with pytest.raises(ObjectStoreError):
            writer.close()
        writer.close()
        assert store.head("a").size_bytes == (0 if operation == "put_object" else PART + 1)


def torn_once(client, monkeypatch, operation, stored):
    """The first `operation` runs `stored` instead and raises ObjectExists, as the retry of a torn request would."""
    real, left = client.call, [1]

    def call(name, path, seconds, **parameters):
        if name == operation and left[0]:
            left[0] = 0
            stored(real, path, seconds, parameters)
            raise ObjectExists(path)
        return real(name, path, seconds, **parameters)

    monkeypatch.setattr(client, "call", call)


class TestTornObjects:
    @pytest.mark.parametrize("kept", [0, 1, 999, 1_000])
    @pytest.mark.parametrize("flip", [False, True])
    def test_a_put_is_done_if_what_is_stored_is_what_was_sent(self, store, monkeypatch, kept, flip):
        data = random.Random(kept).randbytes(1_000)
        held = bytes(data[:kept])
        if flip and kept:
            held = bytes([held[0] ^ 1]) + held[1:]

        def stored(call, path, seconds, parameters):
            call("put_object", path, seconds, **{**parameters, "Body": memoryview(held)})

        torn_once(store.client, monkeypatch, "put_object", stored)
        store.put("sst/a", data, if_absent=True)
        assert store.get("sst/a") == data
        with pytest.raises(ObjectExists):
            store.put("sst/a", data, if_absent=True)

    def test_a_store_that_tears_each_time_has_not_done_it(self, store, monkeypatch):
        real = store.client.call

        def call(name, path, seconds, **parameters):
            if name == "put_object":
                real(name, path, seconds, **{**parameters, "Body": memoryview(bytes(parameters["Body"][:3]))})
                if "IfNoneMatch" in parameters:
                    raise ObjectExists(path)
                return None
            return real(name, path, seconds, **parameters)

        monkeypatch.setattr(store.client, "call", call)
        with pytest.raises(ObjectStoreError, match="5 bytes were sent"):
            store.put("sst/a", b"12345", if_absent=True)

    @pytest.mark.parametrize("missing", [0, 1])
    def test_a_completion_whose_object_lacks_a_part_is_lost(self, store, monkeypatch, missing):
        data = random.Random(missing).randbytes(2 * PART + 7)

        def stored(call, path, seconds, parameters):
            parts = parameters["MultipartUpload"]["Parts"]
            kept = parts[:len(parts) - missing]
            call("complete_multipart_upload", path, seconds, **{**parameters, "MultipartUpload": {"Parts": kept}})

        torn_once(store.client, monkeypatch, "complete_multipart_upload", stored)
        writer = store.create("sst/a")
        writer.write(data)
        if missing:
            with pytest.raises(UploadLost, match="were sent"):
                writer.close()
        else:
            writer.close()
            assert store.get("sst/a") == data


class TestRequests:
    def test_a_creation_repeated_on_its_way_is_known_for_its_own(self, store, monkeypatch):
        real = store.client._http.request

        def twice(method, *args, **settings):
            if method == "PUT":
                real(method, *args, **settings)
            return real(method, *args, **settings)

        monkeypatch.setattr(store.client._http, "request", twice)
        store.put("a", b"mine", if_absent=True)
        with pytest.raises(ObjectExists):
            store.put("a", b"mine", if_absent=True)
        assert store.get("a") == b"mine"

    def test_many_keys_are_deleted_and_listed_in_pages(self, store, metrics):
        paths = [f"o/{number:04d}" for number in range(KEYS_AT_ONCE + 5)]
        threads = [threading.Thread(target=lambda part=paths[n::4]: [store.put(path, b"") for path in part])
                   for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found.path for found in store.list("o/")] == paths
        assert requests(metrics, "ListObjectsV2") == 2
        assert [found.path for found in store.list(after=paths[-3])] == paths[-2:]
        store.delete(paths)
        assert requests(metrics, "DeleteObjects") == 2
        assert list(store.list()) == []

    def test_one_signature_serves_all_ranges_of_an_object(self, store, metrics, monkeypatch):
        store.put("a", b"0123456789")
        signed = []
        real = store.client._boto.generate_presigned_url
        monkeypatch.setattr(store.client._boto, "generate_presigned_url",
                            lambda *args, **settings: signed.append(1) or real(*args, **settings))
        for start in range(5):
            assert store.get("a", range(start, start + 2)) == b"0123456789"[start:start + 2]
        assert len(signed) == 1 and requests(metrics, "GetObject") == 5
        assert moved(metrics, "GetObject", "received") == 10

    def test_two_prefixes_of_a_bucket_are_two_stores(self, store, url):
        other = open_object_store(url.replace("/some/prefix", "/some/pre"))
        store.put("a", b"1")
        other.put("a", b"2", if_absent=True)
        assert store.get("a") == b"1"
        assert [found.path for found in other.list()] == ["a"]

    def test_keys_of_any_letters_travel(self, store):
        for path in ("a b+c&d=e?f#g%h", "é/ü", "日本", "~!*'()", "a" * 900):
            store.put(path, path.encode(), if_absent=True)
            assert store.get(path, range(4)) == path.encode()[:4]
            assert [found.path for found in store.list(path)] == [path]
            store.delete([path])
        assert list(store.list()) == []

    def test_a_fork_opens_connections_of_its_own(self, store):
        store.put("a", b"1")
        pool = store.client._http._pool
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            is_other = store.get("a") == b"1" and store.client._http._pool is not pool
            os.write(writer, b"y" if is_other else b"n")
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reader, 1) == b"y"
        assert store.get("a") == b"1"

    def test_a_fork_waits_for_no_thread_of_its_parent(self, store):
        store.put("a", b"1")
        store.get("a")
        client = store.client
        calls = {"get": lambda: store.get("a"), "put": lambda: store.put("a", b"2"), "close": store.close}
        with held_by_a_thread(client._lock, client._http._pool.pools.lock):
            assert outcomes_in_a_child(calls) == dict.fromkeys(calls, "")
        assert store.get("a") == b"2"


class TestErrors:
    def test_what_will_never_succeed_is_refused_at_once(self, s3_endpoint, s3_credentials):
        store = open_object_store(f"s3://no-such-bucket/x?endpoint={s3_endpoint}")
        for call in (lambda: store.put("a", b""), lambda: store.get("a"), lambda: store.head("a"),
                     lambda: list(store.list()), lambda: store.delete(["a"]), lambda: store.create("a").close()):
            with pytest.raises(ObjectStoreRefused, match="NoSuchBucket"):
                call()

    def test_without_credentials_nothing_is_tried(self, s3_endpoint, monkeypatch, tmp_path):
        for name in ENVIRONMENT:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        store = open_object_store(f"s3://bucket-of-tests?endpoint={s3_endpoint}")
        for call in (lambda: store.put("a", b""), lambda: store.get("a")):
            with pytest.raises(ObjectStoreRefused, match="NoCredentials"):
                call()

    @pytest.mark.parametrize(("status", "code", "kind"), [
        (403, "AccessDenied", ObjectStoreRefused), (404, "NoSuchBucket", ObjectStoreRefused),
        (301, "PermanentRedirect", ObjectStoreRefused), (501, "NotImplemented", ObjectStoreRefused),
        (400, "EntityTooLarge", ObjectStoreRefused), (404, "NoSuchKey", ObjectNotFound), (404, "", ObjectNotFound),
        (412, "PreconditionFailed", ObjectExists), (404, "NoSuchUpload", UploadLost),
        (400, "RequestTimeout", ObjectStoreError), (400, "BadDigest", ObjectStoreError),
        (403, "RequestTimeTooSkewed", ObjectStoreError), (409, "ConditionalRequestConflict", ObjectStoreError),
        (429, "", ObjectStoreError), (500, "InternalError", ObjectStoreError), (503, "SlowDown", ObjectStoreError),
        (400, "", ObjectStoreError), (0, "", ObjectStoreError),
        (400, "ExpiredToken", ObjectStoreError), (400, "TokenRefreshRequired", ObjectStoreError),
        (400, "InvalidToken", ObjectStoreRefused),
    ])
    def test_each_answer_is_typed(self, status, code, kind):
        assert type(typed_error("a", status, code, "why")) is kind

    @pytest.mark.parametrize("url", [
        "s3://key:secret@bucket/x", "s3:///x", "s3://bucket/../x", "s3://bucket?colour=blue",
        "s3://bucket?path_style=perhaps", "s3://bucket?region=a&region=b", "s3://bucket#x", "s3://bucket?endpoint=nowhere",
    ])
    def test_a_url_that_cannot_be_meant_is_refused(self, url):
        with pytest.raises(InvalidOption) as caught:
            open_object_store(url)
        assert "secret" not in str(caught.value)

    def test_nobody_there_ends_within_the_deadline(self, s3_credentials):
        store = open_object_store("s3://bucket-of-tests?endpoint=http://127.0.0.1:9",
                                  retry=RetryOptions(deadline_ms=300))
        with pytest.raises(DeadlineExceeded):
            store.get("a")


class TestProbe:
    def test_a_store_that_creates_exclusively_passes_and_is_left_clean(self, store):
        require_exclusive_creation(store)
        assert list(store.list()) == []

    def test_a_store_that_ignores_the_condition_is_refused(self, store, monkeypatch):
        real = store.client.call
        monkeypatch.setattr(store.client, "call", lambda *args, IfNoneMatch=None, **settings: real(*args, **settings))
        with pytest.raises(ObjectStoreRefused, match="ignores create-if-absent"):
            require_exclusive_creation(store)
        assert list(store.list()) == []
