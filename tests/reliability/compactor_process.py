"""A compactor in a separate process, like `python -m hummock compact URL`, and a concurrent writer."""

from __future__ import annotations

import os
import threading

from hummock.cli import main
from hummock.errors import EpochTooOld
from tests.reliability.fork_server import Note
from tests.reliability.store_workload import TABLES, check_epoch, epoch_of, opened, release_old_versions, write_epoch

EPOCHS = 10


def compact(directory: str, note: Note) -> None:
    """Runs the command itself until no task is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)        # stdout carries the replies of the fork server
    tables = [word for table in TABLES for word in ("--table", str(table))]
    main(["compact", f"file://{directory}", "--once", "--tasks", "1", "--threads", "1", *tables],
         standalone_mode=False)


class Writing:
    """Commits up to EPOCHS new epochs on a thread while the block runs, and one more after it."""

    def __init__(self, directory: str, seed: int):
        self.directory, self.seed = directory, seed
        self.storage = opened(directory, "writer")
        self.number = self.storage.committed_epoch >> 16
        self._is_over, self._error = threading.Event(), None
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Writing:
        self._thread.start()
        self._has_begun.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        try:
            if self._error is not None:
                raise self._error
            self._write_one()
            self.check()
        finally:
            self.storage.close()

    def check(self) -> None:
        """Checks reads of every epoch, before and after a refresh to the newest version."""
        for _ in range(2):
            version = self.storage.version
            for number in range(version.safe_epoch >> 16, self.number + 1):
                try:
                    check_epoch(self.storage, self.seed, number, number)
                except EpochTooOld:
                    assert self.storage.version.safe_epoch > epoch_of(number)
            release_old_versions(self.storage)

    def _write(self) -> None:
        try:
            for _ in range(EPOCHS):
                self._write_one()
                self._has_begun.set()
                if self._is_over.is_set():
                    return
        except BaseException as error:      # raised in __exit__
            self._error = error
            self._has_begun.set()

    def _write_one(self) -> None:
        self.number += 1
        write_epoch(self.storage, self.seed, self.number, lambda text: None)
