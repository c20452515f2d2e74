"""Signed requests to an S3-compatible store, without retries, with typed errors.

boto3 signs and encodes requests and decodes responses; `HttpClient` sends them, because it supports a timeout per
attempt. GETs bypass boto3: one signature of an object serves all its ranges for half an hour, which takes a third of
the CPU time of a signature per request.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from typing import Any

from hummock.base.extras import require
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
# Transient errors although their status blames the request.
PASSING = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch",
           "InvalidDigest", "ExpiredToken", "RequestTimeTooSkewed", "OperationAborted", "ConditionalRequestConflict",
           "SlowDown", "Throttling", "RequestLimitExceeded", "InternalError", "ServiceUnavailable"}
LOST = {"NoSuchUpload", "InvalidPart", "InvalidPartOrder", "EntityTooSmall"}
CODE = re.compile(rb"<Code>([^<]{1,100})</Code>")
MESSAGE = re.compile(rb"<Message>([^<]{1,300})</Message>")


class S3Client:
    """Sends requests to one bucket. A forked process gets its own connections: processes must not share a socket."""

    def __init__(self, address: Address, retry: RetryOptions, metrics: Metrics):
        self.bucket = address.host
        self._address, self._retry, self._metrics = address, retry, metrics
        self._lock = threading.Lock()
        self._trying = threading.local()        # timeout and path of this thread's call
        self._signatures: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._pid = 0
        self._open()

    def call(self, operation: str, path: str, seconds: float, **parameters: Any) -> dict[str, Any]:
        """Performs boto3's `operation` on the bucket. Raises errors of `path`."""
        from botocore.exceptions import BotoCoreError, ClientError

        if self._pid != os.getpid():
            self._open()
        self._trying.seconds, self._trying.path = seconds, path
        try:
            return getattr(self._boto, operation)(Bucket=self.bucket, **parameters)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            said = error.response.get("Error", {})
            raise typed_error(path, status, str(said.get("Code", "")), str(said.get("Message", ""))) from error
        except BotoCoreError as error:
            raise _typed_client_error(path, error) from error

    def get(self, key: str, path: str, seconds: float, byte_range: range | None,
            into: memoryview | None = None) -> Answer:
        """The answer to a GET, of status 200, 206 or 416. Raises errors of `path`."""
        if self._pid != os.getpid():
            self._open()
        headers = {} if byte_range is None else {"Range": f"bytes={byte_range.start}-{byte_range.stop - 1}"}
        url, is_old = self._signed(key, path)
        answer = self._exchange("GetObject", "GET", url, headers, path=path, seconds=seconds, into=into)
        if answer.status == 403 and is_old:     # the credentials used for signing may have been replaced meanwhile
            self._forget(key)
            url, _ = self._signed(key, path)
            answer = self._exchange("GetObject", "GET", url, headers, path=path, seconds=seconds, into=into)
        if answer.status in (200, 206, 416):
            return answer
        code, message = CODE.search(answer.body), MESSAGE.search(answer.body)
        raise typed_error(path, answer.status, code[1].decode(errors="replace") if code else "",
                          message[1].decode(errors="replace") if message else "")

    def close(self) -> None:
        self._http.close()
        self._boto.close()

    def _open(self) -> None:
        require("boto3", "an s3:// store")
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.httpsession import get_cert_path

        with self._lock:
            if self._pid == os.getpid():
                return
            options = self._address.options
            style = "path" if self._address.flag("path_style", default="endpoint" in options) else "virtual"
            config = Config(
                signature_version="s3v4", retries={"total_max_attempts": 1, "mode": "standard"},
                parameter_validation=False,     # it rejects memoryview; `check_path` validates paths
                request_checksum_calculation="when_required", response_checksum_validation="when_required",
                s3={"addressing_style": style})
            try:
                session = boto3.session.Session()
                region = options.get("region") or session.region_name or "us-east-1"
                self._boto = session.client("s3", region_name=region, endpoint_url=options.get("endpoint"),
                                            config=config)
            except (BotoCoreError, ValueError) as error:
                raise InvalidOption("url", self._address.url, f"a store that boto3 can open: {error}") from error
            self._boto.meta.events.register("before-send.s3", self._send)
            self._http = HttpClient(self._retry.connect_ms / 1000, self._retry.idle_ms / 1000,
                                    os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))
            self._pid = os.getpid()

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

    def _signed(self, key: str, path: str) -> tuple[str, bool]:
        """A URL with a signature valid for a while, and whether it was created by an earlier call."""
        from botocore.exceptions import BotoCoreError

        now = monotonic_seconds()
        with self._lock:
            url, made = self._signatures.get(key, ("", 0.0))
            if url and now - made < REUSED_SECONDS:
                self._signatures.move_to_end(key)
                return url, True
        try:
            url = self._boto.generate_presigned_url("get_object", ExpiresIn=SIGNED_SECONDS,
                                                    Params={"Bucket": self.bucket, "Key": key})
        except BotoCoreError as error:
            raise _typed_client_error(path, error) from error
        with self._lock:
            self._signatures[key] = (url, now)
            if len(self._signatures) > SIGNATURES_LIMIT:
                self._signatures.popitem(last=False)
        return url, False

    def _forget(self, key: str) -> None:
        with self._lock:
            self._signatures.pop(key, None)


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


def _typed_client_error(path: str, error: Exception) -> ObjectStoreError:
    """The error for a failure within boto3: no credentials, or a response that it cannot decode."""
    from botocore.exceptions import NoCredentialsError, PartialCredentialsError

    final = isinstance(error, NoCredentialsError | PartialCredentialsError)
    return (ObjectStoreRefused if final else ObjectStoreError)(path, f"{type(error).__name__}: {error}")
