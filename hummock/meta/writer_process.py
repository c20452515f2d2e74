"""The process that has the writer role: written with the claim, so that others can tell whether it still runs."""

from __future__ import annotations

from hummock.base.process_id import ProcessId, this_process
from hummock.meta.records import WRITER, WRITER_PROCESS, Lease, WriterProcess, decode, encode, lease_key
from hummock.meta.store.base import MetaStore
from hummock.meta_client import WriterSession


def process_row(node: str, since_ms: int) -> dict[str, bytes]:
    """What a claim by this process writes besides the role itself."""
    me = this_process()
    return {WRITER_PROCESS: encode(WriterProcess(node, me.host, me.machine, me.pid, me.started, since_ms))}


def claiming_process(meta_store: MetaStore, node: str) -> WriterProcess | None:
    """The process that has claimed the writer role as `node`, None if a release has that does not write this row."""
    written = meta_store.get(WRITER_PROCESS)
    found = None if written is None else decode(WriterProcess, WRITER_PROCESS, written)
    return found if found is not None and found.node == node else None


def running_writer(meta_store: MetaStore) -> WriterProcess | None:
    """The holder of the writer role, if its lease is valid and its process is not known to have ended. On another
    machine a process that was killed counts as running until its lease expires."""
    row = meta_store.get(WRITER)
    if row is None:
        return None
    node = decode(WriterSession, WRITER, row).node
    lease = meta_store.get(lease_key(node))
    if lease is None or decode(Lease, lease_key(node), lease).expires_ms <= meta_store.now_ms():
        return None
    found = claiming_process(meta_store, node)
    if found is None:
        return WriterProcess(node, "an unknown host", "", 0, 0, 0)
    process = ProcessId(found.host, found.machine, found.pid, found.started)
    return None if process.has_ended() else found
