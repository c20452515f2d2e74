"""A process that forks children which work on a store over a faulty server, and kills each after some milliseconds.

No store is open when it forks, so a child is like a spawned process but starts in a tenth of the time.

    python -m tests.reliability.faulty_child        one JSON job per line in, one JSON result per line out

A job: {"bucket", "proxied", "direct", "meta", "seed", "kill_after_ms"}. Its result: {"notes": [...], "error": text},
where a note is "open 3", "begun 4" or "acked 4"."""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from typing import Any

import pyarrow as pa

from hummock.errors import HummockError
from hummock.options import MetaOptions, RetryOptions
from tests.reliability.child_messages import received, send

LIFE_SECONDS = 120.0            # timeout of a child
EPOCHS = 1_000                  # more than a child can write before it is killed
RETRY = RetryOptions(attempts=64, first_delay_ms=1, max_delay_ms=4, deadline_ms=10_000, connect_ms=500, idle_ms=150)
META = MetaOptions(lease_ms=3_000, log_checkpoint_records=12, log_grace_ms=8_000)


def work(job: dict[str, Any], out: int) -> None:
    """Writes epochs, with compaction and vacuum in the background, until it is killed."""
    faulty_store = importlib.import_module("tests.reliability.faulty_store")
    workload = importlib.import_module("tests.reliability.store_workload")

    def note(text: str) -> None:
        send(out, note=text)

    location = faulty_store.StoreLocation(job["bucket"], job["proxied"], job["direct"], job["meta"])
    storage = None
    while storage is None:
        try:
            storage = location.open("writer", RETRY, meta=META)
        except HummockError as error:
            note(f"refused {type(error).__name__}")
    first = (storage.committed_epoch >> 16) + 1
    note(f"open {first - 1}")
    for number in range(first, first + EPOCHS):
        epoch = workload.epoch_of(number)
        note(f"begun {number}")
        for batch in workload.batches(job["seed"], number):
            storage.ingest_batch(faulty_store.WriteBatch(batch), epoch)
        while storage.committed_epoch < epoch:
            try:
                storage.commit(epoch)
            except HummockError as error:
                note(f"refused {type(error).__name__}")
                storage.wait_epoch(storage.committed_epoch, timeout_ms=1)
        note(f"acked {number}")


def child(job: dict[str, Any], out: int) -> None:
    """Runs the job and exits; never returns."""
    try:
        work(job, out)
    except BaseException:
        send(out, error=traceback.format_exc())
    finally:
        os._exit(1)


def run(job: dict[str, Any]) -> dict[str, Any]:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        child(job, write)
    os.close(write)
    output, kill_at, end_at = b"", time.monotonic() + job["kill_after_ms"] / 1000, time.monotonic() + LIFE_SECONDS
    while time.monotonic() < end_at:
        left = kill_at - time.monotonic()
        if left <= 0 and kill_at < end_at:
            os.kill(pid, signal.SIGKILL)
            kill_at = end_at
        if select.select([read], [], [], max(0.0, min(left, 1.0)) if left > 0 else 1.0)[0]:
            part = os.read(read, 1 << 16)
            output += part
            if not part:
                break
    os.close(read)
    os.waitpid(pid, 0)
    return received(output)


def main() -> None:
    for name in ("tests.reliability.faulty_store", "boto3", "botocore.httpsession"):
        importlib.import_module(name)
    pa.set_cpu_count(1)
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
