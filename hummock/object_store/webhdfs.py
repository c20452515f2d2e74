"""Objects in HDFS through its REST API: `webhdfs://host:port/prefix?user_name=...&tls=true`.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html. A growing file is visible, so an
object is written below `.temporary/` and renamed. HDFS refuses to rename onto an existing file: that is
create-if-absent. OpenDAL's service is not used: its listing never returns, and its writes are visible before they are
complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import Any
from urllib.parse import quote, urlencode

from hummock.errors import InvalidPath, ObjectExists, ObjectNotFound, ObjectStoreError, ObjectStoreRefused
from hummock.metrics import Metrics
from hummock.object_store.base import Buffer, ObjectMeta, ObjectStore, RandomBytes, check_path, check_range
from hummock.object_store.http import Answer, HttpClient
from hummock.object_store.url import Address
from hummock.options import RetryOptions

TEMPORARY = ".temporary"
METHODS = {"CREATE": "PUT", "MKDIRS": "PUT", "RENAME": "PUT", "DELETE": "DELETE"}       # else GET
PASSING = {"StandbyException", "RetriableException", "SafeModeException", "IOException", "LeaseExpiredException"}


class WebHdfsObjectStore(ObjectStore):
    """Files below the prefix of `address`, each published by one rename."""

    def __init__(self, address: Address, retry: RetryOptions, metrics: Metrics, *,
                 random_bytes: RandomBytes = os.urandom):
        address.check_options(("user_name", "tls"))
        self._address, self._metrics, self._random_bytes = address, metrics, random_bytes
        scheme = "https" if address.flag("tls", False) else "http"
        self._root = f"{scheme}://{address.host}/webhdfs/v1/"
        self._user = {"user.name": address.options["user_name"]} if "user_name" in address.options else {}
        self._http = HttpClient(retry.connect_ms / 1000, retry.idle_ms / 1000)
        self._seconds = retry.deadline_ms / 1000

    @property
    def url(self) -> str:
        return self._address.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        self._check(path)
        staged = f"{TEMPORARY}/{self._random_bytes(16).hex()}"
        try:
            location = self._located("CREATE", path, staged, overwrite="true")
            _raise_for(path, self._exchange("CREATE", "PUT", location, path, memoryview(data).cast("B")))
            self._call("MKDIRS", path, path.rpartition("/")[0])
            self._publish(path, staged, if_absent)
        except ObjectStoreError:
            with suppress(ObjectStoreError):
                self._call("DELETE", path, staged)
            raise

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        self._check(path)
        query: dict[str, str] = {}
        if byte_range is not None:
            check_range(path, byte_range)
            stop = min(byte_range.stop, self.head(path).size_bytes)
            if byte_range.start >= stop:
                return b""
            query = {"offset": str(byte_range.start), "length": str(stop - byte_range.start)}
        answer = self._exchange("OPEN", "GET", self._located("OPEN", path, path, **query), path)
        _raise_for(path, answer)
        if byte_range is not None and answer.size != stop - byte_range.start:
            raise ObjectStoreError(path, f"asked for {query}, was sent {answer.size} bytes")
        return answer.body

    def head(self, path: str) -> ObjectMeta:
        self._check(path)
        found = self._call("GETFILESTATUS", path, path)["FileStatus"]
        if found["type"] != "FILE":
            raise ObjectNotFound(path, "is no object but a directory")
        return ObjectMeta(path, found["length"], found["modificationTime"])

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        return (found for found in self._walk("", prefix) if found.path > after)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._check(path)
        for path in paths:
            with suppress(ObjectNotFound):
                self._call("DELETE", path, path)

    def within(self, seconds: float) -> ObjectStore:
        limited = copy(self)
        limited._seconds = seconds
        return limited

    def close(self) -> None:
        self._http.close()

    def _publish(self, path: str, staged: str, if_absent: bool) -> None:
        target = {"destination": "/" + self._address.prefix + path}
        if not if_absent:
            self._call("RENAME", path, staged, **target, renameoptions="OVERWRITE")
        elif not self._call("RENAME", path, staged, **target).get("boolean"):
            self.head(path)
            raise ObjectExists(path)

    def _walk(self, directory: str, prefix: str) -> Iterator[ObjectMeta]:
        """Files in ascending order of path. A directory sorts with the slash that follows it: "a-b" is before "a/b"."""
        try:
            found = self._call("LISTSTATUS", prefix, directory)["FileStatuses"]["FileStatus"]
        except ObjectNotFound:
            return
        named = sorted((directory + status["pathSuffix"] + "/" * (status["type"] == "DIRECTORY"), status["length"],
                        status["modificationTime"]) for status in found)
        for path, size, modified_ms in named:
            if not path.endswith("/"):
                if path.startswith(prefix):
                    yield ObjectMeta(path, size, modified_ms)
            elif path != f"{TEMPORARY}/" and (path.startswith(prefix) or prefix.startswith(path)):
                yield from self._walk(path, prefix)

    def _check(self, path: str) -> None:
        if check_path(path).split("/", 1)[0] == TEMPORARY:
            raise InvalidPath(path, f"{TEMPORARY} is the store's own")

    def _call(self, operation: str, path: str, file: str, **query: str) -> dict[str, Any]:
        """The name node's answer to `operation` on `file`. Raises errors of `path`."""
        answer = self._exchange(operation, METHODS.get(operation, "GET"), self._url(operation, file, query), path)
        _raise_for(path, answer)
        return _json(path, answer.body)

    def _located(self, operation: str, path: str, file: str, **query: str) -> str:
        """The URL to send or fetch the bytes of `file`: the name node redirects to a data node."""
        url = self._url(operation, file, {**query, "noredirect": "true"})
        answer = self._exchange(operation, METHODS.get(operation, "GET"), url, path)
        if answer.status == 307:
            location = answer.headers.get("Location", "")
        else:
            _raise_for(path, answer)
            location = _json(path, answer.body).get("Location", "")
        if not isinstance(location, str) or not location.startswith(("http://", "https://")):
            raise ObjectStoreError(path, f"{operation} was answered without a location")
        return location

    def _exchange(self, operation: str, method: str, url: str, path: str, body: memoryview | None = None) -> Answer:
        self._metrics.object_store_requests.labels(operation).inc()
        headers = {} if body is None else {"Content-Type": "application/octet-stream", "Content-Length": str(len(body))}
        if body is not None:
            self._metrics.object_store_request_bytes.labels(operation, "sent").inc(len(body))
        answer = self._http.request(method, url, headers, path=path, seconds=self._seconds, body=body)
        self._metrics.object_store_request_bytes.labels(operation, "received").inc(answer.size)
        return answer

    def _url(self, operation: str, file: str, query: dict[str, str]) -> str:
        return f"{self._root}{quote(self._address.prefix + file)}?{urlencode({'op': operation, **self._user, **query})}"


def _json(path: str, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body) if body else {}
    except ValueError as error:
        raise ObjectStoreError(path, "the answer is no JSON") from error
    if not isinstance(answer, dict):
        raise ObjectStoreError(path, "the answer is no JSON object")
    return answer


def _raise_for(path: str, answer: Answer) -> None:
    """Raises the error for an answer other than success."""
    if answer.status < 300:
        return
    try:
        said = json.loads(answer.body)["RemoteException"]
        name, message = str(said["exception"]), str(said["message"])
    except (ValueError, KeyError, TypeError):
        name, message = "", ""
    reason = f"{answer.status} {name}: {message}"[:300]
    if name == "FileNotFoundException":
        raise ObjectNotFound(path)
    if name == "FileAlreadyExistsException":
        raise ObjectExists(path)
    passes = name in PASSING or not name or answer.status >= 500 or answer.status in (408, 429)
    raise (ObjectStoreError if passes else ObjectStoreRefused)(path, reason)
