"""The outcomes of calls that a forked child makes on objects of its parent."""

import os
import select
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

CHILD_SECONDS = 30


@contextmanager
def held_by_a_thread(*locks: Any) -> Iterator[None]:
    """The locks are held by another thread, which a child forked inside does not have."""
    are_held, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            are_held.set()
            ends.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    are_held.wait()
    try:
        yield
    finally:
        ends.set()
        holder.join()


def outcomes_in_a_child(calls: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    """Name -> the error that the call raised in a forked child, "" if it returned.

    AssertionError if the child did not end in time: the first missing name is the call that hung.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        for name, call in calls.items():
            try:
                call()
                outcome = ""
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}"
            os.write(write_end, f"{name}\0{outcome}\n".encode())
        os.write(write_end, b"end\n")
        os._exit(0)
    os.close(write_end)
    data = b""
    while not data.endswith(b"end\n") and select.select([read_end], [], [], CHILD_SECONDS)[0]:
        part = os.read(read_end, 1 << 16)
        if not part:
            break
        data += part
    os.close(read_end)
    has_ended = data.endswith(b"end\n")
    if not has_ended:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    outcomes = dict(line.split("\0") for line in data.decode().splitlines() if "\0" in line)
    assert has_ended, f"the child hung after {list(outcomes)}"
    return outcomes
