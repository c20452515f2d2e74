"""What an S3 server is asked for: requests and bytes per GB of rows ingested, compacted and scanned, beside SlateDB.

Both engines write to moto's server on loopback through a proxy that counts. The figures are counts, not times: they do
not depend on the machine. Rows are 16 B keys and 100 B values in random order; each tenth of them is made durable.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.datasets import KEY_BYTES, VALUE_BYTES, KeyValueRows, key_value_rows
from bench.peers import Engine, Hummock, SlateDb, engine_class
from hummock.options import CompactionOptions

pytest.importorskip("boto3")
pytest.importorskip("moto")

from tests.support.servers.fault_proxy import FaultProxy, Request, fault_proxy
from tests.support.servers.s3_server import ENVIRONMENT, make_bucket, s3_server

ROWS, SYNCS = 200_000, 10
ROW_BYTES = KEY_BYTES + VALUE_BYTES
REGION = "us-east-1"


class Traffic:
    """Requests by method and bytes both ways since `take`."""

    def __init__(self, proxy: FaultProxy):
        self.counted: Counter[str] = Counter()
        forward = proxy._forward

        async def counting(request: Request) -> tuple[bytes, bytes]:
            head, body = await forward(request)
            kind = "LIST" if request.is_listing else request.method
            self.counted.update({"requests": 1, kind: 1, "sent": len(request.raw), "received": len(head) + len(body)})
            return head, body

        proxy._forward = counting       # type: ignore[method-assign]

    def take(self) -> Counter[str]:
        taken, self.counted = self.counted, Counter()
        return taken


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    old = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    with s3_server() as endpoint:
        yield endpoint
    for name, value in old.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def open_on(name: str, server: str, endpoint: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine over a new bucket, reached through `endpoint`."""
    bucket = make_bucket(server)
    if name == "slatedb":
        for variable, value in {"AWS_ENDPOINT": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION}.items():
            monkeypatch.setenv(variable, value)
        return SlateDb(folder, url=f"s3://{bucket}")
    url = f"s3://{bucket}/db?endpoint={endpoint}&region={REGION}&path_style=true"
    return Hummock(folder, url=url, compaction=CompactionOptions(history_ms=0))


def line_of(what: str, counted: Counter[str], rows: int) -> str:
    gigabytes = rows * ROW_BYTES / 1e9
    kinds = ", ".join(f"{count / gigabytes:,.0f} {kind}" for kind, count in counted.most_common() if kind.isupper())
    return (f"  {what:9} per GB of rows: {counted['requests'] / gigabytes:8,.0f} requests ({kinds}); "
            f"{counted['sent'] / gigabytes / 1e9:.2f} GB sent, {counted['received'] / gigabytes / 1e9:.2f} GB received")


def ingest(engine: Engine, data: KeyValueRows) -> None:
    share = len(data.batches) // SYNCS
    for start in range(0, len(data.batches), share):
        engine.ingest(data.batches[start : start + share])


@pytest.mark.parametrize("name", ["hummock", "slatedb"])
def test_requests_and_bytes(benchmark: Any, name: str, server: str, tmp_path: Path, monkeypatch: Any) -> None:
    kind = engine_class(name)
    data = key_value_rows(ROWS, ROWS // 100, shuffled=True)
    with fault_proxy(server) as proxy:
        traffic = Traffic(proxy)
        engine = open_on(name, server, proxy.endpoint, tmp_path / "db", monkeypatch)
        lines = []
        benchmark.group = "S3, ingest and scan"
        traffic.take()
        benchmark.pedantic(lambda: ingest(engine, data), rounds=1)
        lines.append(line_of("ingest", traffic.take(), ROWS))
        engine.compact()
        if isinstance(engine, Hummock):
            lines.append(line_of("compact", traffic.take(), ROWS))
        assert engine.scan().num_rows == ROWS
        lines.append(line_of("scan", traffic.take(), ROWS))
        engine.close()
    benchmark.extra_info.update(engine=name, rows=ROWS, settings=kind.settings)
    print("\n" + "\n".join([name, *lines]))
