"""Single HTTP requests with a total timeout: no retries, no redirects."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from queue import LifoQueue
from typing import Any

from hummock.base.forked import watch
from hummock.epoch import monotonic_seconds
from hummock.errors import ObjectStoreError
from hummock.object_store.base import Buffer

PART_BYTES = 1 << 18       # sent or received between two checks of the deadline
CONNECTIONS = 64            # kept open for reuse; more are opened on demand


@dataclass(frozen=True, slots=True)
class Answer:
    """`body` is empty if it was received into the caller's memory; `size` is its size in either case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    size: int


class HttpClient:
    """Connections to one or more hosts, kept for reuse; thread safe. A forked process gets its own ones: processes must
    not share a socket.

    An attempt fails if it cannot connect within `connect_seconds`, if no bytes move for `idle_seconds`, or if it
    exceeds its timeout, which may be overrun by at most one idle time.
    """

    def __init__(self, connect_seconds: float, idle_seconds: float, certificates: str | None = None):
        import urllib3

        self._urllib3 = urllib3
        self._connect_seconds, self._idle_seconds = connect_seconds, idle_seconds
        self._trust: dict[str, Any] = {"ca_certs": certificates} if certificates else {}
        self._classes = {"http": _pool_class(urllib3.HTTPConnectionPool),
                         "https": _pool_class(urllib3.HTTPSConnectionPool)}
        self._pool = self._new_pool()
        self._inherited: list[Any] = []     # kept, since closing them may wait for a lock that a parent's thread held
        watch(self)

    def note_fork(self) -> None:
        self._inherited.append(self._pool)
        self._pool = self._new_pool()

    def request(self, method: str, url: str, headers: Mapping[str, str], *, path: str, seconds: float,
                body: Buffer | None = None, into: memoryview | None = None) -> Answer:
        """The answer, whatever its status; the body of a successful one is received `into` memory if that is given.

        Raises `ObjectStoreError` of `path` unless a complete answer is received.
        """
        until = monotonic_seconds() + seconds
        timeout = self._urllib3.Timeout(connect=min(self._connect_seconds, seconds),
                                        read=min(self._idle_seconds, seconds))
        try:
            response = self._pool.request(
                method, url, headers=dict(headers), body=None if body is None else _pieces(body, path, until),
                timeout=timeout, retries=False, redirect=False, preload_content=False, decode_content=False)
            try:
                answer = self._receive(response, method, path, until, into)
            except BaseException:
                response.close()
                raise
            response.release_conn()
            return answer
        except (self._urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError) as error:
            raise ObjectStoreError(path, f"{method} failed: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._pool.clear()

    def _new_pool(self) -> Any:
        pool = self._urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, **self._trust)
        pool.pool_classes_by_scheme = self._classes
        return pool

    def _receive(self, response: Any, method: str, path: str, until: float, into: Any) -> Answer:
        length = response.headers.get("Content-Length")
        expected = None if length is None or method == "HEAD" else int(length)
        is_ended = length is not None or "Transfer-Encoding" in response.headers
        if not is_ended and method != "HEAD" and response.status in (200, 206):
            raise ObjectStoreError(path, "the answer does not say where it ends")
        if into is not None and response.status == 206 and expected is not None:
            if expected > len(into):
                raise ObjectStoreError(path, f"the answer is longer than the {len(into)} bytes asked for")
            size, parts = self._receive_into(response, path, until, into[:expected]), []
        else:
            parts = list(self._received(response, path, until, expected))
            size = sum(map(len, parts))
        if expected is not None and size != expected:
            raise ObjectStoreError(path, f"the answer ends after {size} of {expected} bytes")
        return Answer(response.status, response.headers, parts[0] if len(parts) == 1 else b"".join(parts), size)

    def _received(self, response: Any, path: str, until: float, expected: int | None) -> Iterator[bytes]:
        size = 0
        while (expected is None or size < expected) and (data := response.read1(PART_BYTES)):
            size += len(data)
            yield data
            self._look_at_the_clock(response, path, until)

    def _receive_into(self, response: Any, path: str, until: float, memory: memoryview) -> int:
        size, source = 0, response._fp          # response.readinto copies
        while size < len(memory) and (taken := source.readinto1(memory[size:])):
            size += taken
            self._look_at_the_clock(response, path, until)
        return size

    def _look_at_the_clock(self, response: Any, path: str, until: float) -> None:
        left = until - monotonic_seconds()
        if left <= 0:
            raise ObjectStoreError(path, "the answer came too slowly")
        socket = getattr(response.connection, "sock", None)
        if socket is not None and left < self._idle_seconds:
            socket.settimeout(left)


def _pool_class(kind: Any) -> Any:
    """A connection pool that rejects answers with truncated headers."""
    connection = type("WholeHeadConnection", (kind.ConnectionCls,), {"response_class": _WholeHeadResponse})
    return type("WholeHeadPool", (kind,), {"ConnectionCls": connection, "QueueCls": _Connections})


class _Connections(LifoQueue):
    """The idle connections of a pool. urllib3 empties the queue at the end of the process, so in a forked one it must
    be free, although a parent's thread may have held it.
    """

    def __init__(self, limit: int):
        super().__init__(limit)
        self._inherited: list[Any] = []
        watch(self)

    def note_fork(self) -> None:
        self._inherited += self.queue
        super().__init__(self.maxsize)


class _WholeHeadResponse(http.client.HTTPResponse):
    """An answer with complete headers: the standard library takes a connection's end for the end of the headers."""

    def begin(self) -> None:
        stream: Any = self.fp
        self.fp = _Lines(stream)        # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if isinstance(self.fp, _Lines):
                self.fp = stream

    def readinto1(self, memory: Any) -> int:
        """Receives once, of a body of known length; 0 at its end."""
        stream: Any = self.fp
        if stream is None or not self.length:
            return 0
        taken = stream.readinto1(memory[:self.length])
        self.length -= taken
        if not self.length:
            self._close_conn()          # type: ignore[attr-defined]
        return taken


class _Lines:
    """Lines of a stream; raises if one is truncated."""

    def __init__(self, stream: Any):
        self._stream = stream

    def readline(self, limit: int = -1) -> bytes:
        line = self._stream.readline(limit)
        if not line.endswith(b"\n") and (limit < 0 or len(line) < limit):
            raise ConnectionResetError("the connection ended within the headers of an answer")
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _pieces(body: Buffer, path: str, until: float) -> Any:
    """`body` in chunks small enough for one timeout, since a socket's timeout bounds a whole send."""
    view = memoryview(body).cast("B")
    return view if len(view) <= PART_BYTES else _timed_pieces(view, path, until)


def _timed_pieces(view: memoryview, path: str, until: float) -> Iterator[memoryview]:
    for start in range(0, len(view), PART_BYTES):
        if monotonic_seconds() > until:
            raise ObjectStoreError(path, "the store took the object too slowly")
        yield view[start:start + PART_BYTES]
