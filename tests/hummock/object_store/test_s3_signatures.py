"""Signatures of GETs that end before their time, and credentials that are replaced or cannot be got."""

import random
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("boto3")

from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import ClientError, NoCredentialsError

from hummock.errors import ObjectStoreError, ObjectStoreRefused
from hummock.metrics import Metrics
from hummock.object_store import s3_client
from hummock.object_store.http import Answer
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.s3 import S3ObjectStore
from hummock.object_store.s3_client import REUSED_SECONDS, _seconds_left
from hummock.object_store.url import parse_address
from hummock.options import RetryOptions

URL = "s3://bucket/some?endpoint=http://127.0.0.1:9"
PUT_HEADERS = {"ETag": '"e"', "Content-Length": "0"}


class Bucket:
    """Answers requests whose signature it does not refuse; notes how each GET and PUT was signed.

    GETs are signed by `sign`, which numbers the URLs; PUTs and other sessions by boto3.
    """

    def __init__(self, store, monkeypatch):
        self.client, self.refused, self.gets, self.puts, self.signed = store.client, {}, [], [], 0
        monkeypatch.setattr(self.client._http, "request", self.request)

    def sign(self, *_, **__):
        self.signed += 1
        return f"http://127.0.0.1:9/x?number={self.signed}"

    def number_signatures(self, monkeypatch):
        monkeypatch.setattr(self.client._boto, "generate_presigned_url", self.sign)

    def refuse(self, what, status, code):
        """Refuses requests in whose URL or headers `what` is."""
        self.refused[what] = status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()

    def request(self, method, url, headers, **_):
        (self.gets if method == "GET" else self.puts).append(url)
        for what, (status, body) in self.refused.items():
            if what in url or what in str(headers):
                return Answer(status, {"Content-Length": str(len(body))}, body, len(body))
        return Answer(200, PUT_HEADERS, b"data" if method == "GET" else b"", 4)


@pytest.fixture
def store(s3_credentials):
    store = S3ObjectStore(parse_address(URL), RetryOptions(), Metrics())
    yield store
    store.close()


@pytest.fixture
def bucket(store, monkeypatch):
    bucket = Bucket(store, monkeypatch)
    bucket.number_signatures(monkeypatch)
    return bucket


STALE = [(400, "ExpiredToken"), (400, "InvalidToken"), (400, "TokenRefreshRequired"), (403, "AccessDenied"),
         (403, "InvalidAccessKeyId"), (403, "SignatureDoesNotMatch"), (401, "Unauthorized")]


@pytest.mark.parametrize(("status", "code"), STALE)
def test_a_signature_that_has_become_invalid_is_made_again_once(store, bucket, status, code):
    assert store.get("a") == store.get("a") == b"data"
    bucket.refuse("number=1", status, code)
    for _ in range(3):
        assert store.get("a") == b"data"
    numbers = [url.rpartition("=")[2] for url in bucket.gets]
    assert numbers == ["1", "1", "1", "2", "2", "2"] and bucket.signed == 2


@pytest.mark.parametrize(("status", "code"), STALE)
def test_a_signature_that_never_was_valid_is_not_used_again(store, bucket, status, code):
    bucket.refuse("number=", status, code)
    for _ in range(3):
        with pytest.raises(ObjectStoreError, match=code):
            store.get("a")
    assert [url.rpartition("=")[2] for url in bucket.gets] == ["1", "2", "3"]


@pytest.mark.parametrize(("status", "code"), [(404, "NoSuchKey"), (503, "SlowDown"), (400, "IncompleteBody")])
def test_an_error_of_another_kind_leaves_the_signature(store, bucket, status, code):
    bucket.refuse("number=1", status, code)
    for _ in range(3):
        with pytest.raises(ObjectStoreError):
            store.get("a")
    assert len(bucket.gets) == 3 and bucket.signed == 1


def test_two_threads_that_find_it_invalid_make_one_again(store, bucket, monkeypatch):
    store.get("a")
    bucket.refuse("number=1", 400, "ExpiredToken")
    real, is_first = store.client._exchange, [True]

    def exchange(*args, **settings):
        answer = real(*args, **settings)
        if answer.status == 400 and is_first.pop():
            is_first.append(False)
            assert store.get("a") == b"data"        # another thread was refused before, and has signed again
        else:
            is_first[:] = [False]
        return answer

    monkeypatch.setattr(store.client, "_exchange", exchange)
    assert store.get("a") == b"data"
    assert bucket.signed == 2


def expiring(seconds, renew=None):
    return RefreshableCredentials("key", "secret", "token", datetime.now(UTC) + timedelta(seconds=seconds), renew,
                                  "test")


@pytest.mark.parametrize("left", [5, 60, 700, 1_000, 1_790])
def test_a_signature_is_reused_no_longer_than_its_credentials_live(left):
    assert left // 2 - 1 <= _seconds_left(expiring(left)) <= left


@pytest.mark.parametrize("credentials", [None, Credentials("key", "secret"), expiring(10**6)])
def test_credentials_that_live_long_allow_half_an_hour(credentials):
    assert _seconds_left(credentials) == REUSED_SECONDS


def test_a_signature_ends_with_its_credentials(store, bucket, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(s3_client, "monotonic_seconds", lambda: now[0])
    store.client._credentials = expiring(1_000)
    store.get("a")
    store.get("a")
    assert bucket.signed == 1
    now[0] += 1_000
    store.get("a")
    assert bucket.signed == 2


def failing(error):
    def renew():
        raise error
    return renew


THROTTLED = ClientError({"Error": {"Code": "Throttling", "Message": "slowly"},
                         "ResponseMetadata": {"HTTPStatusCode": 400}}, "AssumeRole")
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"},
                      "ResponseMetadata": {"HTTPStatusCode": 403}}, "AssumeRole")
PAST = {"access_key": "a", "secret_key": "b", "token": "c", "expiry_time": "2020-01-01T00:00:00Z"}


@pytest.mark.parametrize(("renew", "kind"), [
    (failing(THROTTLED), ObjectStoreError), (failing(DENIED), ObjectStoreRefused),
    (failing(NoCredentialsError()), ObjectStoreRefused), (failing(ValueError("no JSON")), ObjectStoreError),
    (lambda: PAST, ObjectStoreError),
], ids=["throttled", "denied", "none", "not JSON", "expired ones"])
def test_credentials_that_cannot_be_got_are_an_error_of_the_object(store, bucket, renew, kind):
    store.client._credentials = expiring(0, renew)
    for call in (lambda: store.get("a"), lambda: store.put("a", b"1"), lambda: store.head("a")):
        with pytest.raises(ObjectStoreError) as caught:
            call()
        assert type(caught.value) is kind and caught.value.path == "a"
    assert bucket.gets == bucket.puts == []


@pytest.fixture
def credentials_file(tmp_path, monkeypatch, s3_credentials):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    return file


def write_token(file, token):
    file.write_text(f"[default]\naws_access_key_id=a\naws_secret_access_key=s\naws_session_token={token}\n")


@pytest.mark.parametrize("call", [lambda store: store.get("a"), lambda store: store.put("a", b"1")], ids=["get", "put"])
def test_credentials_replaced_in_their_file_are_read_again(credentials_file, monkeypatch, call):
    now = [1_000.0]
    monkeypatch.setattr(s3_client, "monotonic_seconds", lambda: now[0])
    write_token(credentials_file, "FORMER")
    inner = S3ObjectStore(parse_address(URL), RetryOptions(), Metrics())
    retry = RetryOptions(attempts=3)
    store = InstrumentedObjectStore(inner, Metrics(), retry, Pacing(random.Random(1), sleep=lambda _: None))
    bucket = Bucket(inner, monkeypatch)
    call(store)
    write_token(credentials_file, "LATTER")
    bucket.refuse("FORMER", 400, "ExpiredToken")
    now[0] += 3_600
    call(store)
    asked = len(bucket.gets) + len(bucket.puts)
    call(store)
    assert len(bucket.gets) + len(bucket.puts) == asked + 1
    store.close()


def test_sessions_are_opened_again_at_most_once_in_a_while_and_not_without_credentials(credentials_file, monkeypatch):
    now, opened = [1_000.0], []
    monkeypatch.setattr(s3_client, "monotonic_seconds", lambda: now[0])
    write_token(credentials_file, "FORMER")
    store = S3ObjectStore(parse_address(URL), RetryOptions(), Metrics())
    bucket = Bucket(store, monkeypatch)
    bucket.refuse("FORMER", 400, "ExpiredToken")
    real = store.client._open
    monkeypatch.setattr(store.client, "_open", lambda: opened.append(now[0]) or real())
    boto = store.client._boto
    credentials_file.unlink()
    for _ in range(20):
        now[0] += 1
        with pytest.raises(ObjectStoreError, match="ExpiredToken"):
            store.get("a")
    assert opened == [1_010, 1_020] and store.client._boto is boto
    credentials_file.write_text("[default\n")                   # half written
    now[0] += 10
    with pytest.raises(ObjectStoreError, match="ExpiredToken"):
        store.get("a")
    write_token(credentials_file, "LATTER")
    now[0] += 10
    with pytest.raises(ObjectStoreError, match="ExpiredToken"):
        store.get("a")
    assert store.get("a") == b"data"
    store.close()
