"""Signed requests to an S3-compatible store, without retries, with typed errors.

boto3 signs and encodes requests and decodes responses; `HttpClient` sends them, because it supports a timeout per
attempt. GETs bypass boto3: one signature of an object serves all its ranges for half an hour, which takes a third of
the CPU time of a signature per request. It ends with the credentials that it was made from, if these are of a session;
one that the store refuses is never used again.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from typing import Any

from hummock.base.extras import require
from hummock.base.forked import watch
from hummock.epoch import monotonic_seconds
from hummock.errors import (
    InvalidOption,
    ObjectExists,
    ObjectNotFound,
    ObjectStoreError,
    ObjectStoreRefused,
    UploadLost,
)
from hummock.metrics import Metrics
from hummock.object_store.http import Answer, HttpClient
from hummock.object_store.url import Address
from hummock.options import RetryOptions

SIGNED_SECONDS = 3600
REUSED_SECONDS = SIGNED_SECONDS // 2
SIGNATURES_LIMIT = 4096
REOPENED_SECONDS = 10       # at most once in this time
# Transient errors although their status blames the request.
PASSING = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch",
           "InvalidDigest", "ExpiredToken", "TokenRefreshRequired", "RequestTimeTooSkewed", "OperationAborted",
           "ConditionalRequestConflict", "SlowDown", "Throttling", "RequestLimitExceeded", "InternalError",
           "ServiceUnavailable"}
# The session token of a signature is not valid any more: status 400, unlike other refused signatures.
ENDED_SESSION = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired"}
LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"}
CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
MESSAGE = re.compile(rb"<Message>([^<]{1,300})</Message>")


class S3Client:
    """Sends requests to one bucket, also in a forked process, which opens a session of its own."""

    def __init__(self, address: Address, retry: RetryOptions, metrics: Metrics):
        self.bucket = address.host
        self._address, self._metrics = address, metrics
        self._lock = threading.Lock()
        self._trying = threading.local()        # timeout and path of this thread's call
        self._signatures: OrderedDict[str, tuple[str, float]] = OrderedDict()       # by key: URL, and until when
        self._boto: Any = None
        self._credentials: Any = None           # botocore's; None: there are none
        self._opened_at = 0.0
        self._is_forked = False
        self._inherited: list[Any] = []         # kept, since closing them may wait for a lock of a parent's thread
        self._open()
        from botocore.httpsession import get_cert_path

        self._http = HttpClient(retry.connect_ms / 1000, retry.idle_ms / 1000,
                                os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))
        watch(self)

    def note_fork(self) -> None:
        self._lock, self._is_forked = threading.Lock(), True

    def call(self, operation: str, path: str, seconds: float, **parameters: Any) -> dict[str, Any]:
        """Performs boto3's `operation` on the bucket. Raises errors of `path`."""
        from botocore.exceptions import BotoCoreError, ClientError

        boto = self._ready(path)
        self._trying.seconds, self._trying.path = seconds, path
        try:
            return getattr(boto, operation)(Bucket=self.bucket, **parameters)
        except ClientError as error:
            self._reopen_after(_code_of(error), boto)
            raise _typed_answer(path, error) from error
        except BotoCoreError as error:
            raise _typed_client_error(path, error) from error

    def get(self, key: str, path: str, seconds: float, byte_range: range | None,
            into: memoryview | None = None) -> Answer:
        """The answer to a GET, of status 200, 206 or 416. Raises errors of `path`."""
        headers = {} if byte_range is None else {"Range": f"bytes={byte_range.start}-{byte_range.stop - 1}"}
        code = ""
        for _ in range(2):
            url, is_reused, boto = self._signed(key, path)
            answer = self._exchange("GetObject", "GET", url, headers, path=path, seconds=seconds, into=into)
            if answer.status in (200, 206, 416):
                return answer
            code = _said(CODE, answer.body)
            if answer.status not in (401, 403) and code not in ENDED_SESSION:
                break
            self._forget(key, url)
            if not is_reused:
                self._reopen_after(code, boto)
                break
        raise typed_error(path, answer.status, code, _said(MESSAGE, answer.body))

    def close(self) -> None:
        self._http.close()
        self._boto.close()

    def _ready(self, path: str) -> Any:
        """boto3's client, with credentials that can sign now. Raises errors of `path`."""
        from botocore.exceptions import ClientError

        if self._is_forked:
            with self._lock:
                if self._is_forked:
                    self._inherited.append((self._boto, self._credentials))
                    self._credentials = None
                    self._open()
                    self._is_forked = False
        boto = self._boto
        try:
            if self._credentials is not None:
                self._credentials.get_frozen_credentials()
        except ClientError as error:
            raise _typed_answer(path, error) from error
        except Exception as error:              # each source of credentials has errors of its own
            raise _typed_client_error(path, error) from error
        return boto

    def _open(self) -> None:
        """Opens a session, which looks for credentials; the former one is kept if it has some and this one has none.
        Raises `InvalidOption`.
        """
        require("boto3", "an s3:// store")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        self._opened_at = monotonic_seconds()
        options = self._address.options
        style = "path" if self._address.flag("path_style", default="endpoint" in options) else "virtual"
        config = Config(
            signature_version="s3v4", retries={"total_max_attempts": 1, "mode": "standard"},
            parameter_validation=False,     # it rejects memoryview; `check_path` validates paths
            request_checksum_calculation="when_required", response_checksum_validation="when_required",
            s3={"addressing_style": style})
        try:
            session = boto3.session.Session()
            credentials = session.get_credentials()
            region = options.get("region") or session.region_name or "us-east-1"
            boto = session.client("s3", region_name=region, endpoint_url=options.get("endpoint"), config=config)
        except (BotoCoreError, ValueError) as error:
            raise InvalidOption("url", self._address.url, f"a store that boto3 can open: {error}") from error
        boto.meta.events.register("before-send.s3", self._send)
        if credentials is not None or self._credentials is None:
            self._boto, self._credentials = boto, credentials

    def _reopen_after(self, code: str, boto: Any) -> None:
        """Opens another session if the store refuses the credentials of `boto`: a session reads those of a file only
        once, and they may have been replaced since.
        """
        if code not in ENDED_SESSION and code != "InvalidAccessKeyId":
            return
        with self._lock, suppress(InvalidOption):
            if self._boto is boto and monotonic_seconds() - self._opened_at >= REOPENED_SECONDS:
                self._open()
                self._signatures.clear()

    def _send(self, request: Any, event_name: str, **_: Any) -> Any:
        """Sends boto3's request through HttpClient; boto3 uses the return value as the response."""
        from botocore.awsrequest import AWSResponse

        headers = {name: value.decode("latin-1") if isinstance(value, bytes) else str(value)
                   for name, value in request.headers.items()}
        answer = self._exchange(event_name.rpartition(".")[2], request.method, request.url, headers,
                                path=self._trying.path, seconds=self._trying.seconds, body=request.body or None)
        return AWSResponse(request.url, answer.status, answer.headers, _Body(answer.body))

    def _exchange(self, name: str, method: str, url: str, headers: dict[str, str], *, path: str, seconds: float,
                  body: Any = None, into: memoryview | None = None) -> Answer:
        if isinstance(body, str):
            body = body.encode()
        self._metrics.object_store_requests.labels(name).inc()
        if body is not None:
            self._metrics.object_store_request_bytes.labels(name, "sent").inc(memoryview(body).nbytes)
        answer = self._http.request(method, url, headers, path=path, seconds=seconds, body=body, into=into)
        self._metrics.object_store_request_bytes.labels(name, "received").inc(answer.size)
        return answer

    def _signed(self, key: str, path: str) -> tuple[str, bool, Any]:
        """A URL with a signature valid for a while, whether an earlier call created it, and boto3's client."""
        from botocore.exceptions import BotoCoreError

        now = monotonic_seconds()
        if not self._is_forked:
            with self._lock:
                url, until = self._signatures.get(key, ("", 0.0))
                if url and now < until:
                    self._signatures.move_to_end(key)
                    return url, True, self._boto
        boto = self._ready(path)
        until = now + _seconds_left(self._credentials)
        try:
            url = boto.generate_presigned_url("get_object", ExpiresIn=SIGNED_SECONDS,
                                              Params={"Bucket": self.bucket, "Key": key})
        except BotoCoreError as error:
            raise _typed_client_error(path, error) from error
        with self._lock:
            self._signatures[key] = (url, until)
            if len(self._signatures) > SIGNATURES_LIMIT:
                self._signatures.popitem(last=False)
        return url, False, boto

    def _forget(self, key: str, url: str) -> None:
        """Forgets the signature, unless another thread has replaced it."""
        with self._lock:
            if self._signatures.get(key, ("", 0.0))[0] == url:
                del self._signatures[key]


class _Body:
    """A received body with the interface that boto3 reads a response by."""

    def __init__(self, data: bytes):
        self._data = data

    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [self._data]


def typed_error(path: str, status: int, code: str, message: str) -> ObjectStoreError:
    """The error for an answer other than success. An unknown refusal is final: a retry would not change it."""
    reason = f"{status} {code}: {message}".rstrip(": ")
    if code in LOST:
        return UploadLost(path, reason)
    if code in PASSING or status in (0, 408, 409, 425, 429) or (status >= 500 and status != 501):
        return ObjectStoreError(path, reason)
    if status == 412:
        return ObjectExists(path)
    if status == 404 and code in ("", "404", "NoSuchKey", "Not Found"):
        return ObjectNotFound(path)
    if status == 400 and code in ("", "400"):
        return ObjectStoreError(path, reason)           # not from the store but from a proxy on the way
    return ObjectStoreRefused(path, reason)


def _said(pattern: re.Pattern[bytes], body: bytes) -> str:
    found = pattern.search(body)
    return found[1].decode(errors="replace") if found else ""


def _seconds_left(credentials: Any) -> float:
    """How long a signature may be reused so that the credentials do not expire meanwhile, at least half of that time:
    botocore only says whether they expire within a given one.
    """
    seconds = REUSED_SECONDS
    while seconds and hasattr(credentials, "refresh_needed") and credentials.refresh_needed(seconds):
        seconds //= 2
    return seconds


def _code_of(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _typed_answer(path: str, error: Any) -> ObjectStoreError:
    """The error for botocore's `ClientError`, the answer of S3 or of a service that gives credentials."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return typed_error(path, status, _code_of(error), str(error.response.get("Error", {}).get("Message", "")))


def _typed_client_error(path: str, error: Exception) -> ObjectStoreError:
    """The error for a failure within boto3: no credentials or none in time, or a response that it cannot decode."""
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    final = isinstance(error, NoCredentialsError | PartialCredentialsError)
    return (ObjectStoreRefused if final else ObjectStoreError)(path, f"{type(error).__name__}: {error}")
