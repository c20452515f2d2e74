"""A test double of a WebHDFS server: the file operations, with the answers of HDFS.

https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html. Files are visible while they grow, a
rename onto a file is refused, CREATE creates parents and RENAME requires them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PREFIX = "/webhdfs/v1"
MODIFIED_MS = 1_700_000_000_000


class Tree:
    """Files by absolute path; `None` is a directory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nodes: dict[str, bytes | None] = {"/": None}

    def make_directories(self, path: str) -> None:
        names = [name for name in path.split("/") if name]
        for count in range(len(names) + 1):
            node = "/" + "/".join(names[:count])
            if self.nodes.setdefault(node, None) is not None:
                raise NotADirectoryError(node)

    def status(self, path: str, name: str) -> dict[str, Any]:
        data = self.nodes[path]
        return {"pathSuffix": name, "type": "DIRECTORY" if data is None else "FILE", "length": len(data or b""),
                "modificationTime": MODIFIED_MS, "accessTime": 0, "blockSize": 1 << 27, "group": "g", "owner": "o",
                "permission": "755", "replication": 1}

    def children(self, path: str) -> list[dict[str, Any]]:
        if self.nodes[path] is not None:
            return [self.status(path, "")]
        inside = path.rstrip("/") + "/"
        return [self.status(node, node[len(inside):]) for node in sorted(self.nodes)
                if node.startswith(inside) and node != "/" and "/" not in node[len(inside):]]


def handler_of(tree: Tree) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            parts = urlsplit(self.path)
            path = "/" + unquote(parts.path.removeprefix(PREFIX)).strip("/")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                with tree.lock:
                    status, data = getattr(self, query["op"].lower())(path, query, body)
            except (KeyError, NotADirectoryError):
                name = "FileNotFoundException"
                status, data = 404, {"RemoteException": {
                    "exception": name, "message": f"File does not exist: {path}", "javaClassName": f"java.io.{name}"}}
            raw = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/octet-stream" if raw is data else "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PUT = do_DELETE = answer

        def create(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, Any]:
            if "data" not in query:
                return 200, {"Location": f"http://{self.headers['Host']}{self.path}&data=true"}
            if query.get("overwrite") != "true" and path in tree.nodes:
                return 403, {"RemoteException": {"exception": "FileAlreadyExistsException", "message": path,
                                                 "javaClassName": "org.apache.hadoop.fs.FileAlreadyExistsException"}}
            tree.make_directories(path.rpartition("/")[0])
            tree.nodes[path] = body
            return 201, b""

        def open(self, path: str, query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            data = tree.nodes[path]
            if query.pop("noredirect", "") == "true":
                return 200, {"Location": f"http://{self.headers['Host']}{self.path.replace('noredirect=true', '')}"}
            if data is None:
                raise KeyError(path)
            start = int(query.get("offset", 0))
            return 200, data[start:start + int(query.get("length", len(data)))]

        def getfilestatus(self, path: str, _query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            return 200, {"FileStatus": tree.status(path, "")}

        def liststatus(self, path: str, _query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            return 200, {"FileStatuses": {"FileStatus": tree.children(path)}}

        def mkdirs(self, path: str, _query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            tree.make_directories(path)
            return 200, {"boolean": True}

        def rename(self, path: str, query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            target = "/" + query["destination"].removeprefix(PREFIX).strip("/")
            parent = target.rpartition("/")[0] or "/"
            is_free = target not in tree.nodes or query.get("renameoptions") == "OVERWRITE"
            if path not in tree.nodes or not is_free or parent not in tree.nodes:
                return 200, {"boolean": False}
            tree.nodes[target] = tree.nodes.pop(path)
            return 200, {"boolean": True}

        def delete(self, path: str, _query: dict[str, str], _body: bytes) -> tuple[int, Any]:
            return 200, {"boolean": tree.nodes.pop(path, 0) != 0}

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def webhdfs_double() -> Iterator[tuple[str, Tree]]:
    """Host and port of a running double, and its files."""
    tree = Tree()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(tree))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", tree
    finally:
        server.shutdown()
        server.server_close()
