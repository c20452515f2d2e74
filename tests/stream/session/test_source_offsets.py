"""source_offsets: those of the newest committed epoch, read once for each of them."""

import pyarrow as pa
import pytest

import stream
from relational.errors import NotFound
from stream.session import snapshot


def write(path, rows):
    table = pa.table({"k": range(rows)})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def test_offsets_follow_the_commits_and_are_read_once_for_each(tmp_path, monkeypatch):
    write(tmp_path / "a.arrow", 10)
    read = []
    offsets = snapshot.Snapshot.offsets
    monkeypatch.setattr(snapshot.Snapshot, "offsets", lambda self, name: read.append(name) or offsets(self, name))
    with stream.connect("memory://", split_discovery_ms=10, barrier_interval_ms=1_000_000) as db:
        db.sql(f"CREATE TABLE t (k BIGINT) APPEND ONLY WITH (connector = 'arrow', path = '{tmp_path}')")
        while db.table("t").to_arrow().num_rows < 10:
            db.flush()
        for _ in range(3):
            epoch, done = db.committed_epoch, len(read)
            first = db.source_offsets("t")
            assert set(first) == {"a.arrow"}
            for _ in range(5):
                assert db.source_offsets("t") == first
                db.source_offsets("t").clear()  # the caller's own
            if db.committed_epoch == epoch:  # no commit of the creation came in between
                break
        else:
            pytest.fail("commits that nobody asked for")
        assert len(read) <= done + 1
        write(tmp_path / "b.arrow", 3)
        while db.table("t").to_arrow().num_rows < 13:
            db.flush()
        assert set(db.source_offsets("t")) == {"a.arrow", "b.arrow"}
        db.sql("DROP TABLE t")
        with pytest.raises(NotFound):
            db.source_offsets("t")
