"""One session writes a store: others are told which process has it, and take it over only on request."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import stream
from hummock.base import process_id
from hummock.base.process_id import ProcessId, this_process
from hummock.errors import Fenced, InvalidOption, StoreNotFound, WriterRunning
from hummock.meta import open_meta_store
from hummock.meta.records import WRITER_PROCESS, WriterProcess, decode, encode
from hummock.meta.store.base import MetaOperations
from hummock.meta.writer_process import running_writer
from stream.cli.main import main

CHILD = """
import sys, stream
db = stream.connect(sys.argv[1], barrier_interval_ms=20)
db.sql("INSERT INTO t VALUES (10)")
db.flush()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def url(tmp_path):
    url = f"file://{tmp_path}/store"
    with stream.connect(url, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
    return url


@pytest.fixture
def child(url):
    process = subprocess.Popen([sys.executable, "-c", CHILD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def ids(db):
    return sorted(row["id"] for row in db.sql("SELECT id FROM t").rows())


def test_a_second_session_is_refused_at_once_and_disturbs_nobody(url, child):
    with pytest.raises(WriterRunning) as caught:
        stream.connect(url)
    assert (caught.value.pid, caught.value.host) == (child.pid, socket.gethostname())
    assert abs(caught.value.since_ms - time.time() * 1000) < 60_000
    assert f"process {child.pid} of {socket.gethostname()}" in str(caught.value) and "take_over" in str(caught.value)
    with stream.connect(url, role="reader") as reader:
        assert ids(reader) == [1, 10]
    assert child.poll() is None


def test_a_killed_writer_is_replaced_at_once(url, child):
    child.send_signal(signal.SIGKILL)
    while (state := Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
        assert state in "RSDt"
    with stream.connect(url) as db:  # its parent has not even waited for it
        assert ids(db) == [1, 10]


def test_it_is_taken_over_on_request(url):
    first = stream.connect(url)
    with stream.connect(url, take_over=True) as second:
        first.sql("INSERT INTO t VALUES (2)")
        with pytest.raises(Fenced):
            first.flush()
        second.sql("INSERT INTO t VALUES (3)")
        second.flush()
        assert ids(second) == [1, 3]
    first.abandon()


def test_a_session_of_this_process_is_one_too_and_gives_the_role_back(url):
    with stream.connect(url), pytest.raises(WriterRunning, match=rf"this process \(process {os.getpid()}\)"):
        stream.connect(url)
    abandoned = stream.connect(url)
    abandoned.abandon()
    stream.connect(url).close()


def test_a_writer_of_another_machine_counts_until_its_lease_ends(url, monkeypatch):
    with stream.connect(url) as db, closing(open_meta_store(url)) as meta:
        found = decode(WriterProcess, WRITER_PROCESS, meta.get(WRITER_PROCESS))
        elsewhere = replace(found, machine="another", host="elsewhere", pid=1)
        meta.transaction(MetaOperations(put={WRITER_PROCESS: encode(elsewhere)}))
        with pytest.raises(WriterRunning, match="process 1 of elsewhere"):
            stream.connect(url)
        now = meta.now_ms()
        monkeypatch.setattr(meta, "now_ms", lambda: now + db._playground.manager.lease_ms + 1)
        assert running_writer(meta) is None
        monkeypatch.undo()
        meta.transaction(MetaOperations(delete=(WRITER_PROCESS,)))  # as after a claim by an older release
        with pytest.raises(WriterRunning, match="an unknown host"):
            stream.connect(url)


def test_processes_that_run_and_that_have_ended():
    me = this_process()
    assert not me.has_ended()
    assert replace(me, started=me.started + 1).has_ended()  # its number was given to another one
    assert not replace(me, started=process_id.UNKNOWN_START).has_ended()
    child = subprocess.Popen([sys.executable, "-c", ""])
    one = ProcessId(me.host, me.machine, child.pid, 0)
    child.wait()
    assert one.has_ended() and not replace(one, machine="another").has_ended()


def test_without_proc_the_number_decides(monkeypatch, tmp_path):
    monkeypatch.setattr(process_id, "BOOT_ID", tmp_path / "none")
    process_id._machine.cache_clear()
    try:
        me = this_process()
        assert socket.gethostname() in me.machine and not me.has_ended()
    finally:
        process_id._machine.cache_clear()


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_mistyped_path_creates_nothing(tmp_path, form):
    location = form.format(tmp_path / "shop")
    for options in ({}, {"role": "reader"}):
        with pytest.raises(StoreNotFound, match="create=True"):
            stream.connect(location, **options)
    assert list(tmp_path.iterdir()) == []
    with stream.connect(location, create=True) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    with stream.connect(tmp_path / "shop") as db, stream.connect(location, role="reader") as reader:
        assert ids(db) == ids(reader) == [1]


def test_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    stream.connect("a b/shop", create=True).close()
    stream.connect("~/shop", create=True).close()
    assert (tmp_path / "a b" / "shop").is_dir() and (tmp_path / "home" / "shop").is_dir()
    stream.connect(f"file://{tmp_path}/a%20b/shop").close()
    with pytest.raises(InvalidOption):
        stream.connect("")


@pytest.mark.parametrize("options", [{"create": True}, {"take_over": True}])
def test_a_reader_neither_creates_nor_takes_over(url, options):
    with pytest.raises(InvalidOption, match="changes nothing"):
        stream.connect(url, role="reader", **options)


def test_the_command_that_keeps_the_jobs_asks_before_it_takes_over(url, child, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.setattr("stream.cli.stream.freeze_objects", lambda: None)
    refused = CliRunner().invoke(main, ["stream", "--store", url, "--seconds", "0.1"])
    assert refused.exit_code == 1 and f"process {child.pid}" in refused.output and child.poll() is None
    taken = CliRunner().invoke(main, ["stream", "--store", url, "--seconds", "0.1", "--take-over"])
    assert taken.exit_code == 0, taken.output
