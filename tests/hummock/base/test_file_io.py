"""Where a system has no fdatasync, no preadv, or an fsync that is not enough, the same results come another way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hummock.base import file_io

SYNCS = (file_io.sync_file, file_io.sync_data)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sync calls that are made, by name."""
    made: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda descriptor, name=name: made.append(name))
    monkeypatch.setattr(file_io.fcntl, "fcntl", lambda descriptor, command: made.append(command))
    monkeypatch.setattr(file_io, "FULL_SYNC", None)
    return made


def test_data_is_synced_without_dates(calls: list[str]) -> None:
    file_io.sync_file(0)
    file_io.sync_data(0)
    assert calls == ["fsync", "fdatasync"]


def test_without_fdatasync_all_of_a_file_is_synced(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fdatasync")
    file_io.sync_data(0)
    assert calls == ["fsync"]


@pytest.mark.parametrize("sync", SYNCS)
def test_where_fsync_is_not_enough_the_drive_is_asked_too(calls: list[str], sync, monkeypatch) -> None:
    monkeypatch.setattr(file_io, "FULL_SYNC", "full sync")
    sync(0)
    assert calls == ["full sync"]


@pytest.mark.parametrize("sync", SYNCS)
def test_a_file_system_that_cannot_ask_its_drive_gets_an_fsync(calls: list[str], sync, monkeypatch) -> None:
    def refuse(descriptor: int, command: str) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(file_io, "FULL_SYNC", "full sync")
    monkeypatch.setattr(file_io.fcntl, "fcntl", refuse)
    sync(0)
    assert calls == ["fsync"]


@pytest.mark.parametrize("has_preadv", [True, False])
def test_reading_into_memory_is_exact_up_to_the_end_of_the_file(has_preadv: bool, tmp_path: Path, monkeypatch) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv")
    data = bytes(range(100))
    path = tmp_path / "file"
    path.write_bytes(data)
    with path.open("rb") as file:
        for start, size in ((0, 100), (3, 10), (95, 10), (100, 4), (0, 0)):
            target = bytearray(b"\xff" * size)
            got = file_io.read_into(file.fileno(), memoryview(target), start)
            assert target == (data[start:start + got] + b"\xff" * (size - got))
            assert got == len(data[start:start + size])
