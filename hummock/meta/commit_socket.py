"""How processes of one host hear of a commit at once: a Unix socket of the process that commits.

A process that reads connects to it; at each commit it receives the committed epoch, 8 bytes, little-endian:

    the commit of epoch 65536     00 00 01 00 00 00 00 00

What arrives is a hint to read the meta store, which says what is true, and which readers look at every `refresh_ms` in
any case. So nobody waits for a reader that does not receive, hints may be lost or forged, and a store that several
hosts use needs no other form. The address is a file in a directory of the user, named by a digest of the meta store's
URL; where no such file can be made, readers learn of commits by looking.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from hummock.epoch import Epoch

MOST_LISTENERS = 1_024
"""Beyond them, readers look every `refresh_ms`."""
RETRY_SECONDS = 0.5
"""Between two attempts to connect, and between two looks whether another process has made the socket anew."""
HINT = struct.Struct("<Q")


class CommitAnnouncer:
    """The side that commits. Thread safe. Without a socket, as in a directory that cannot be written, `announce` has no
    effect."""

    def __init__(self, meta_url: str) -> None:
        self._path = socket_path(meta_url)
        self._lock = threading.Lock()
        self._listeners: list[socket.socket] = []
        self._server = _listening(self._path)
        self._wakes, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="commit-socket", daemon=True)
        if self._server is not None:
            self._inode = _inode(self._path)
            self._thread.start()

    def announce(self, epoch: Epoch) -> None:
        """Tells all listeners that `epoch` is committed; waits for none of them."""
        hint = HINT.pack(epoch)
        with self._lock:
            self._listeners = [each for each in self._listeners if _is_sent(each, hint)]

    def close(self) -> None:
        """Idempotent."""
        with suppress(OSError):
            self._wake.send(b"\0")
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            for each in (self._wake, self._wakes, *self._listeners):
                each.close()
            self._listeners = []
        if self._server is not None:
            if _inode(self._path) == self._inode:  # else another process has taken the address over
                self._path.unlink(missing_ok=True)
            self._server.close()

    def _accept(self) -> None:
        server = self._server
        assert server is not None
        with selectors.DefaultSelector() as ready:
            ready.register(server, selectors.EVENT_READ)
            ready.register(self._wakes, selectors.EVENT_READ)
            while all(key.fileobj is server for key, _ in ready.select()):
                with suppress(OSError):
                    self._add(server.accept()[0])

    def _add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with self._lock:
            if len(self._listeners) < MOST_LISTENERS:
                self._listeners.append(connection)
            else:
                connection.close()


class CommitListener:
    """The side that reads: calls `on_commit()` after commits, from a thread of its own; several may share a call."""

    def __init__(self, meta_url: str, on_commit: Callable[[], object]) -> None:
        self._path, self._on_commit = socket_path(meta_url), on_commit
        self._is_closed = threading.Event()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="commit-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Idempotent."""
        self._is_closed.set()
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(RETRY_SECONDS)
                connection.connect(str(self._path))
                self._receive(connection, _inode(self._path))
            self._connection = None
            self._is_closed.wait(RETRY_SECONDS)

    def _receive(self, connection: socket.socket, inode: int | None) -> None:
        """Until the other side ends, or another process has the address."""
        self._connection = connection
        self._on_commit()  # what was committed before it connected
        while not self._is_closed.is_set() and _inode(self._path) == inode:
            with suppress(TimeoutError):
                if not connection.recv(64 * HINT.size):
                    return
                self._on_commit()


def socket_path(meta_url: str) -> Path:
    """Where the process that commits to this meta store listens."""
    location = str(Path(meta_url).resolve()) if meta_url.startswith("/") else meta_url
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(runtime) if runtime else Path(tempfile.gettempdir()) / f"hummock-{os.getuid()}"
    return directory / f"{blake2b(location.encode(), digest_size=8).hexdigest()}.hummock"


def _listening(path: Path) -> socket.socket | None:
    """A socket at `path` in place of what is there; None where none can be made."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        server.bind(str(path))
        server.listen(64)
    except OSError:
        server.close()
        return None
    return server


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _is_sent(listener: socket.socket, hint: bytes) -> bool:
    """False if the other side has ended. A buffer that is full holds hints enough."""
    try:
        listener.send(hint)
    except BlockingIOError:
        return True
    except OSError:
        listener.close()
        return False
    return True
