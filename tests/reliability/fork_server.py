"""A process that forks a child for each job, and imports what a child has imported: later ones have it already.

No store is open when it forks, so a child is like a spawned process but starts in a hundredth of the time. It runs
under the preloaded `file_calls`, so a child may be killed at any of its file calls, or have them journalled.

    python -m tests.reliability.fork_server        one JSON job per line in, one JSON result per line out

A job: {"work": "module:function", "arguments": {...}, "root": directory, "kill_at": call or 0, "when": 0 to 2,
"journal": path or "", "fail_with": error number or 0, "times": number of failing calls from "kill_at" on}. Its result:
{"signal": number or 0, "calls": "cwwss...", "notes": [...], "result": any, "error": text}, where "calls" has one
letter for each file call. Notes of a child are reported however it ended."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from tests.reliability.child_messages import received, send

Note = Callable[[str], None]
CHILD_SECONDS = 120.0
FILE_CALLS = ctypes.CDLL(None)


def child(job: dict[str, Any], out: int) -> None:
    """Runs the work, reports it and exits; never returns."""
    code, known = 1, set(sys.modules)

    def note(text: str) -> None:
        FILE_CALLS.file_calls_note(text.encode())
        send(out, note=text)

    try:
        module, _, function = job["work"].partition(":")
        work = getattr(importlib.import_module(module), function)
        journal = os.open(job["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if job["journal"] else -1
        root, at = job["root"].encode(), ctypes.c_long(job["kill_at"])
        if job["fail_with"]:
            FILE_CALLS.file_calls_fail(root, at, job["fail_with"], ctypes.c_long(job["times"]))
        else:
            FILE_CALLS.file_calls_arm(root, at, job["when"], journal)
        result = work(note=note, **job["arguments"])
        calls = FILE_CALLS.file_calls_disarm().decode()
        send(out, calls=calls, result=result, imported=[name for name in sys.modules if name not in known])
        code = 0
    except BaseException:
        send(out, error=traceback.format_exc())
    finally:
        os._exit(code)


def run(job: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        child(job, write)
    os.close(write)
    output = b""
    while select.select([read], [], [], CHILD_SECONDS)[0]:
        part = os.read(read, 1 << 16)
        output += part
        if not part:
            break
    else:
        os.kill(pid, signal.SIGABRT)
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    end = received(output, signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, calls="", result=None)
    preload(end.pop("imported", ()))
    return end


def preload(names: Iterable[str]) -> None:
    for name in names:
        with suppress(ImportError):     # some are no modules of a file
            importlib.import_module(name)
    gc.freeze()


def main() -> None:
    FILE_CALLS.file_calls_disarm.restype = ctypes.c_char_p
    pa.set_cpu_count(1)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
