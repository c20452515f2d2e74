"""Every command on a store in a bucket whose meta store is the log in the same bucket."""

import json

import pytest
from click.testing import CliRunner

import hummock
from hummock.cli import main
from hummock.columnar.write_batch import WriteBatch
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

pytestmark = pytest.mark.s3
COMMITS = 9


def run_json(*arguments, status=0):
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_a_bucket_is_looked_at_verified_compacted_and_vacuumed(s3_url):
    assert run_json("version", s3_url, status=1)["error"].startswith("StoreNotFound")
    with hummock.open(s3_url, role="writer", compaction=False, inline_bytes=0) as store:
        epochs = hummock.EpochGenerator()
        for number in range(COMMITS):
            epoch = epochs.next()
            store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%d" % row), b"%d" % number)
                                           for row in range(8)]), epoch)
            store.commit(epoch)
    objects = open_object_store(s3_url)
    objects.put(sstable_data_path("ab" * 16), b"x" * 10)
    assert run_json("verify", s3_url)["objects"] == 2 * COMMITS
    assert run_json("compact", s3_url)["failed"] == 0
    report = run_json("vacuum", s3_url, "--grace", "0")
    assert report["found"]["stale"]["files"] > 0 and report["found"]["orphaned"]["files"] == 1
    assert run_json("vacuum", s3_url, "--grace", "0")["removed"]["files"] == 0
    files = sum(len(run["sstables"]) for level in run_json("version", s3_url)["levels"] for run in level)
    assert len(list(objects.list("sst/"))) == 2 * files and run_json("verify", s3_url)["damaged"] == []
    assert len(run_json("sst-dump", s3_url)["files"]) == files
    assert run_json("stats", s3_url)["stored"]["found"]["live"]["files"] == files
    with hummock.open(s3_url) as store:
        assert {value for _, value in store.scan(hummock.KeyRange(), store.committed_epoch)} == {b"%d" % (COMMITS - 1)}
