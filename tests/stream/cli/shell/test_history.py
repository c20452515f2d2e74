import os
import stat

import pytest

from stream.cli.shell import history
from stream.cli.shell.history import HistoryFile, history_path, without_secrets


def test_nobody_else_reads_the_history(tmp_path):
    path = tmp_path / "state" / "hummock" / "history"
    before = os.umask(0)
    try:
        HistoryFile(path).append("SELECT 1;")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    HistoryFile(path).append("SELECT\n2;")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert HistoryFile(path).entries() == ["SELECT 1;", "SELECT\n2;"]


def test_it_is_where_the_user_keeps_state(tmp_path):
    assert history_path({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "hummock" / "history"
    assert history_path({}).parts[-4:] == (".local", "state", "hummock", "history")
    assert history_path({"XDG_STATE_HOME": "relative"}).is_absolute()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\\c postgres://ann:s3cret@host/db", "\\c postgres://ann:***@host/db"),
        ("WITH (url = 'postgres://ann:s3:c@h/d')", "WITH (url = 'postgres://ann:***@h/d')"),
        ("WITH (password = 'it''s', a = 'b')", "WITH (password = '***', a = 'b')"),
        ("WITH (s3.secret_access_key='x')", "WITH (s3.secret_access_key='***')"),
        ("SET token TO abc;", "SET token TO '***';"),
        ("SELECT * FROM orders WHERE a = 'b'", "SELECT * FROM orders WHERE a = 'b'"),
        ("file:///data/a:b", "file:///data/a:b"),
    ],
)
def test_secrets_are_left_out(text, kept):
    assert without_secrets(text) == kept


def test_the_newest_entries_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MOST_ENTRIES", 3)
    file = HistoryFile(tmp_path / "history")
    for number in range(5):
        file.append(f"SELECT {number};")
    assert file.entries() == ["SELECT 2;", "SELECT 3;", "SELECT 4;"]
    assert len((tmp_path / "history").read_text().splitlines()) == 3


def test_without_a_file_there_is_no_history(tmp_path):
    (tmp_path / "file").touch()
    file = HistoryFile(tmp_path / "file" / "history")
    file.append("SELECT 1;")
    file.append("  ")
    assert file.entries() == []
    (tmp_path / "damaged").write_text('"SELECT 1;"\nnot json\n7\n"SELECT 2;"\n')
    assert HistoryFile(tmp_path / "damaged").entries() == ["SELECT 1;", "SELECT 2;"]
