"""A proxy between a client and an S3 server that injects the faults of networks and bad servers.

For each request the proxy's plan selects a `Kind`. Honest kinds fail, repeat or delay; lying ones report success with a
wrong answer. Everything runs on 127.0.0.1, in a thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit


class Kind(Enum):
    DROP_BEFORE = "the connection closes and nothing happened"
    DROP_AFTER = "it happened and the connection closes instead of an answer"
    RESET = "the connection is reset while the request is read"
    DELAY = "it takes a little longer"
    STALL = "no answer comes and the connection stays open"
    ERROR_500 = "500 InternalError"
    SLOW_DOWN = "503 SlowDown"
    TOO_MANY = "429 without a word of the store"
    CUT_BODY = "the answer's body ends in its middle"
    CUT_HEAD = "the answer ends in its headers"
    GARBAGE = "the answer is no HTTP"
    ERROR_AFTER = "it happened and 500 is answered"
    REPLAY = "the request reaches the server twice and the second answer is given"
    LATE = "nothing happens now, but after some later requests it does"
    DRIP = "the answer comes in very small pieces"
    # Lying kinds.
    ALTERED = "one bit of the body is another one"
    SHORTENED = "the body is shorter and the headers agree"
    SWAPPED = "the body is that of an earlier answer"
    FORGOTTEN = "success is answered and nothing was written"
    DENIED = "404 NoSuchKey for an object that is there"
    GHOST = "a listing names an object that is not there"
    HIDDEN = "a listing leaves out its last object"


LYING = frozenset((Kind.ALTERED, Kind.SHORTENED, Kind.SWAPPED, Kind.FORGOTTEN, Kind.DENIED, Kind.GHOST, Kind.HIDDEN))
HONEST = tuple(kind for kind in Kind if kind not in LYING)
LATE_BY = 3             # requests
STALL_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """`path` is the key of the object as encoded in the URL, with the query."""

    method: str
    path: str
    raw: bytes

    @property
    def is_listing(self) -> bool:
        return self.method == "GET" and "list-type=2" in self.path


Plan = Callable[[Request], Kind | None]


def share(seed: int, kind: Kind, percent: int = 25) -> Plan:
    """A plan that hits a random `percent` of the requests to which `kind` applies."""
    rng = random.Random(seed)
    reads = {Kind.ALTERED, Kind.SHORTENED, Kind.SWAPPED, Kind.DENIED}

    def plan(request: Request) -> Kind | None:
        is_object = request.method == "GET" and not request.is_listing
        fits = (is_object if kind in reads else request.is_listing if kind in (Kind.GHOST, Kind.HIDDEN)
                else request.method == "PUT" if kind is Kind.FORGOTTEN else True)
        return kind if fits and rng.randrange(100) < percent else None

    return plan


class FaultProxy:
    """`plan` may be replaced at any time; `injected` counts the injected faults by kind."""

    def __init__(self, upstream: str):
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname, parts.port
        self.plan: Plan = lambda request: None
        self.injected: Counter[Kind] = Counter()
        self.requests = 0
        self.endpoint = ""
        self._late: list[tuple[int, Request]] = []
        self._earlier = b"an answer that was not asked for"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may serve another request."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        length = re.search(rb"(?im)^content-length: *(\d+)", head)
        request = Request(method, path, b"")
        kind = self.plan(request)
        if kind is not None:
            self.injected[kind] += 1
        if kind is Kind.RESET:
            writer.transport.abort()
            return False
        body = await reader.readexactly(int(length[1])) if length else b""
        raw = re.sub(rb"(?im)^(connection|expect): [^\r]*\r\n", b"", head)
        request = Request(method, path, raw[:-2] + b"Connection: close\r\n\r\n" + body)
        self.requests += 1
        await self._send_late_requests()
        answer = await self._answer(request, kind)
        if answer is None:
            return False
        if kind is Kind.DRIP:
            for start in range(0, len(answer), max(1, len(answer) // 20)):
                writer.write(answer[start:start + max(1, len(answer) // 20)])
                await writer.drain()
        else:
            writer.write(answer)
            await writer.drain()
        return kind not in (Kind.CUT_BODY, Kind.CUT_HEAD, Kind.GARBAGE)

    async def _answer(self, request: Request, kind: Kind | None) -> bytes | None:
        """The answer for the client; None closes the connection."""
        simple = {Kind.ERROR_500: (500, "InternalError"), Kind.SLOW_DOWN: (503, "SlowDown"), Kind.TOO_MANY: (429, "")}
        if kind in simple:
            return _error(*simple[kind])
        if kind is Kind.STALL:
            await asyncio.sleep(STALL_SECONDS)
        if kind is Kind.LATE:
            self._late.append((self.requests + LATE_BY, request))
        if kind in (Kind.DROP_BEFORE, Kind.STALL, Kind.LATE):
            return None
        if kind is Kind.FORGOTTEN:
            return b'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nETag: "d41d8cd98f00b204e9800998ecf8427e"\r\n\r\n'
        if kind is Kind.DENIED:
            return _error(404, "NoSuchKey")
        if kind is Kind.DELAY:
            await asyncio.sleep(0.01)
        if kind is Kind.REPLAY:
            await self._forward(request)
        head, body = await self._forward(request)
        if kind is Kind.DROP_AFTER:
            return None
        if kind is Kind.ERROR_AFTER:
            return _error(500, "InternalError")
        return self._with_fault(request, head, body, kind)

    def _with_fault(self, request: Request, head: bytes, body: bytes, kind: Kind | None) -> bytes:
        whole = _with_length(head, body, request.method)
        if kind is Kind.CUT_BODY:
            return whole[:len(whole) - (len(body) + 1) // 2] if body else whole[:-1]
        if kind is Kind.CUT_HEAD:
            return whole[:len(head) // 2]
        if kind is Kind.GARBAGE:
            return b"\x00\xff\x13 what is this\r\n\r\n" + body
        if kind is Kind.ALTERED and body:
            position = len(body) // 3
            body = body[:position] + bytes([body[position] ^ 4]) + body[position + 1:]
        elif kind is Kind.SHORTENED:
            body = body[:len(body) * 2 // 3]
        elif kind is Kind.SWAPPED:
            body, self._earlier = self._earlier[:len(body)].ljust(len(body), b"-"), body
        elif kind is Kind.HIDDEN:
            begin = body.rfind(b"<Contents>")
            body = body if begin < 0 else body[:begin] + body[body.rfind(b"</Contents>") + 11:]
        elif kind is Kind.GHOST and (last := body.rfind(b"</Contents>")) >= 0:
            entry = body[body.rfind(b"<Contents>"):last + 11]
            body = body[:last + 11] + re.sub(rb"</Key>", b".ghost</Key>", entry) + body[last + 11:]
        return _with_length(head, body, request.method)

    async def _send_late_requests(self) -> None:
        due = [request for when, request in self._late if when <= self.requests]
        self._late = [(when, request) for when, request in self._late if when > self.requests]
        for request in due:
            await self._forward(request)

    async def _forward(self, request: Request) -> tuple[bytes, bytes]:
        """Head and body of the answer of the server."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(request.raw)
            await writer.drain()
            answer = await reader.read()
        finally:
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return head, body


def _with_length(head: bytes, body: bytes, method: str) -> bytes:
    """An HTTP/1.1 answer with the right Content-Length."""
    lines = head.split(b"\r\n")
    lines[0] = re.sub(rb"^HTTP/1\.[01]", b"HTTP/1.1", lines[0])
    dropped = (b"connection:",) if method == "HEAD" else (b"connection:", b"content-length:")
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    if method != "HEAD" and b" 204 " not in lines[0]:
        kept.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(kept) + b"\r\n\r\n" + (b"" if method == "HEAD" else body)


def _error(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>injected</Message></Error>".encode() if code else b""
    return b"HTTP/1.1 %d Injected\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s" % (
        status, len(body), body)


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """A running proxy in front of `upstream`."""
    proxy, loop, started = FaultProxy(upstream), asyncio.new_event_loop(), threading.Event()

    async def main() -> None:
        server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=1 << 20)
        proxy.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()

    def run() -> None:
        loop.create_task(main())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
