"""Commits are announced to other processes of the host, which nobody waits for."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from hummock.epoch import Epoch
from hummock.meta import commit_socket
from hummock.meta.commit_socket import HINT, CommitAnnouncer, CommitListener, socket_path


@pytest.fixture(autouse=True)
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(commit_socket, "RETRY_SECONDS", 0.02)
    return tmp_path


class Counter:
    def __init__(self):
        self.calls, self.changed = 0, threading.Condition()

    def __call__(self):
        with self.changed:
            self.calls += 1
            self.changed.notify_all()

    def wait(self, calls):
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls >= calls, 20)


@pytest.fixture
def announcer():
    announcer = CommitAnnouncer("/store/meta")
    yield announcer
    announcer.close()


@pytest.fixture
def heard():
    counter = Counter()
    listener = CommitListener("/store/meta", counter)
    yield counter
    listener.close()


def test_the_example_of_the_hint(announcer):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path("/store/meta")))
        announcer.announce(Epoch(1))  # it may be accepted only now
        while not announcer._listeners:
            pass
        announcer.announce(Epoch(65_536))
        assert connection.recv(64)[-8:] == bytes.fromhex("00 00 01 00 00 00 00 00") == HINT.pack(65_536)


def test_each_listener_hears_of_commits(announcer, heard):
    other = Counter()
    second = CommitListener("/store/meta", other)
    heard.wait(1)
    other.wait(1)
    while len(announcer._listeners) < 2:
        pass
    for number in range(1, 20):
        before = heard.calls, other.calls
        announcer.announce(Epoch(number))
        heard.wait(before[0] + 1)
        other.wait(before[1] + 1)
    second.close()
    second.close()


def test_a_listener_that_comes_first_waits_for_the_writer(heard):
    announcer = CommitAnnouncer("/store/meta")
    heard.wait(1)
    announcer.close()
    assert not socket_path("/store/meta").exists()


def test_a_writer_that_takes_over_is_heard_and_the_former_one_leaves_its_address(announcer, heard):
    heard.wait(1)
    successor = CommitAnnouncer("/store/meta")
    heard.wait(2)  # it has connected to the new one
    announcer.close()
    assert socket_path("/store/meta").exists()
    while not successor._listeners:
        pass
    successor.announce(Epoch(3))
    heard.wait(3)
    successor.close()


def test_nobody_waits_for_a_listener_that_does_not_receive(announcer):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path("/store/meta")))
        while not announcer._listeners:
            pass
        for number in range(100_000):
            announcer.announce(Epoch(number))
        assert announcer._listeners
    announcer.announce(Epoch(7))
    announcer.announce(Epoch(8))
    assert not announcer._listeners


def test_listeners_beyond_the_limit_are_closed(announcer, monkeypatch):
    monkeypatch.setattr(commit_socket, "MOST_LISTENERS", 1)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        first.connect(str(socket_path("/store/meta")))
        while not announcer._listeners:
            pass
        second.connect(str(socket_path("/store/meta")))
        assert second.recv(8) == b""


@pytest.mark.skipif(os.getuid() == 0, reason="the superuser may write anywhere")
def test_without_a_place_for_the_socket_nothing_is_announced(runtime):
    runtime.chmod(0o500)
    announcer = CommitAnnouncer("/store/meta")
    announcer.announce(Epoch(1))
    announcer.close()


def test_a_path_that_is_too_long_is_no_error(monkeypatch, runtime):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / ("long" * 50)))
    announcer = CommitAnnouncer("/store/meta")
    announcer.announce(Epoch(1))
    announcer.close()


def test_one_store_by_several_names(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    assert socket_path(f"{tmp_path}/link/meta") == socket_path(f"{tmp_path}/meta") != socket_path("s3://b/meta")
