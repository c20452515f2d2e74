"""A PostgreSQL server of the tests' own: a new cluster on a loopback port, gone with the session."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

START_SECONDS = 60


def binary(name):
    """Where the server's program is, None where no server is installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(installed[0]) if installed else shutil.which(name)


def server_account():
    """Who runs the server: it refuses to be root. None: the one who runs the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL cannot run as root, and there is no other account")
    return None


@contextlib.contextmanager
def running_server():
    """The URL of a database; skips where no server is installed."""
    pytest.importorskip("psycopg")
    initdb, postgres = binary("initdb"), binary("postgres")
    if initdb is None or postgres is None:
        pytest.skip("no PostgreSQL server is installed: initdb was not found")
    account = server_account()
    with tempfile.TemporaryDirectory(prefix="pg") as directory, socket.socket() as probe:
        if account is not None:
            os.chown(directory, account.pw_uid, account.pw_gid)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        user = {} if account is None else {"user": account.pw_name, "group": account.pw_gid}
        data = f"{directory}/data"
        subprocess.run([initdb, "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C"],
                       check=True, capture_output=True, cwd=directory, timeout=START_SECONDS, **user)
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        server = subprocess.Popen([postgres, "-D", data, *(part for name, value in options.items()
                                                           for part in ("-c", f"{name}={value}"))],
                                  cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)
        url = f"postgresql://tester@127.0.0.1:{port}/postgres"
        try:
            wait_until_ready(url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)       # ends at once, whoever is still connected
            server.wait(START_SECONDS)


def wait_until_ready(url, server):
    ready = binary("pg_isready")
    for _ in range(START_SECONDS * 10):
        if subprocess.run([ready, "-d", url, "-t", "1"], capture_output=True).returncode == 0:
            return
        assert server.poll() is None, "the server ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
    raise AssertionError("the server does not answer")
