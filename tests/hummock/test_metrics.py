"""Metrics: declared once, one registry per store, state read only at a scrape, served on localhost only."""

import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import hummock
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import InvalidOption, StoreClosed
from hummock.metrics import Metrics, serve_metrics
from hummock.store.stats import COUNTED, StorageStats


def text_of(metrics):
    return generate_latest(metrics.registry).decode()


def test_a_store_reports_what_was_written_read_and_stored():
    with hummock.open("memory://", inline_bytes=0) as store:
        epoch = hummock.EpochGenerator().next()
        keys = [hummock.user_key(1, 0, b"%04d" % number) for number in range(100)]
        store.ingest_batch(WriteBatch([(key, b"v") for key in keys]), epoch)
        store.commit(epoch)
        store.get_many(keys[:30], epoch)
        store.scan(hummock.KeyRange.table(1), epoch).to_arrow()
        text = text_of(store.metrics)
        for line in ("hummock_store_ingested_rows_total 100.0", "hummock_store_get_many_keys_total 30.0",
                     "hummock_store_scan_calls_total 1.0", f"hummock_store_committed_epoch {float(epoch)}",
                     "hummock_upload_seconds_count 1.0", "hummock_commit_seconds_count 1.0"):
            assert line in text, line
        assert store.metrics.total("hummock_object_store_bytes", direction="written") > 0
    assert "hummock_store_" not in text_of(store.metrics), "a closed store has no state"


def test_what_is_watched_is_read_at_each_scrape_and_never_else():
    @dataclass
    class State:
        rows: int
        words: str = "not a number"
        share: float = .5

    metrics, reads = Metrics(), []

    def read():
        reads.append(1)
        if len(reads) > 2:
            raise StoreClosed()
        return State(len(reads))

    metrics.watch(read, {"rows"})
    assert reads == []
    assert "hummock_store_rows_total 1.0" in text_of(metrics)
    text = text_of(metrics)
    assert "hummock_store_rows_total 2.0" in text and "hummock_store_share 0.5" in text and "words" not in text
    assert "hummock_store_rows" not in text_of(metrics)


def test_what_is_counted_are_fields_of_the_state():
    names = set(StorageStats.__dataclass_fields__)
    assert names >= COUNTED >= {"ingested_rows", "get_many_keys", "scan_calls"}


def test_totals_sum_over_the_labels_that_are_not_named():
    metrics = Metrics()
    metrics.compact_tasks.labels("level", "done").inc(2)
    metrics.compact_tasks.labels("ttl", "done").inc(3)
    metrics.compact_tasks.labels("ttl", "failed").inc()
    assert metrics.total("hummock_compact_tasks", outcome="done") == 5
    assert metrics.total("hummock_compact_tasks") == 6 and metrics.total("hummock_nothing") == 0


def test_every_name_has_its_prefix_unit_and_help():
    names = [(family.name, family.documentation) for family in Metrics().registry.collect()]
    assert len(names) > 15
    for name, words in names:
        assert name.startswith("hummock_") and words and words[0].isupper() and not words.endswith("."), name
        assert "_ms" not in name, "seconds and bytes only"


def test_the_readme_names_every_metric():
    text = (Path(hummock.__file__).parent / "README.md").read_text()
    missing = [family.name for family in Metrics().registry.collect() if f"`{family.name}`" not in text]
    assert not missing
    assert all(f"`{field}`" in text for field in StorageStats.__dataclass_fields__)


def test_two_stores_do_not_share_a_registry():
    assert Metrics().registry is not Metrics().registry
    registry = CollectorRegistry()
    assert Metrics(registry).registry is registry


def test_metrics_are_served_on_this_machine_only_and_until_the_end():
    metrics = Metrics()
    metrics.vacuum_files.labels("stale").inc(7)
    with serve_metrics(metrics, 0) as url:
        assert url.startswith("http://127.0.0.1:")
        answer = urllib.request.urlopen(url, timeout=20).read().decode()
        assert 'hummock_vacuum_files_total{stage="stale"} 7.0' in answer
        port = int(url.rsplit(":", 1)[1].split("/")[0])
        with pytest.raises(InvalidOption, match="port"), serve_metrics(metrics, port):
            pass
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=20)
