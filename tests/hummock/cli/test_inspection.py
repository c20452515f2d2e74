"""Inspection commands on a small store, intact and damaged."""

import random

import pyarrow as pa
import pytest
from click.testing import CliRunner

from hummock.__main__ import main
from hummock.base.key import user_key
from hummock.base.table_rules import PrefixRule, TableRules
from hummock.meta import open_meta_store
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.options import StorageOptions
from hummock.sstable.builder import SstableBuilder
from hummock.sstable.filter.policy import filter_policy
from hummock.tools.dump import shown_epoch, shown_key, shown_value
from hummock.tools.verify import verify_version
from tests.support.drivers.compaction_files import put_file
from tests.support.worlds.manager_parts import epoch_of

ROWS = 3_000


def build(name, epoch):
    rng = random.Random(name)
    builder = SstableBuilder(StorageOptions(block_bytes=4096), filter_policy("blocked_bloom"), name)
    for number in range(ROWS):
        value = None if number % 100 == 0 else rng.randbytes(20)
        builder.put(user_key(1 + number // 1_000, 7, b"%06d" % number), epoch, value)
    return builder.finish()


@pytest.fixture
def url(tmp_path):
    """A store of three commits with one file each, and one file that was never committed."""
    url = f"file://{tmp_path}/store"
    objects, meta_store = open_object_store(url), open_meta_store(url)
    manager = HummockManager(meta_store, objects)
    session = manager.claim_writer("maker")
    for number in range(1, 5):
        output = build(f"{number:032x}", epoch_of(number * 1_000))
        put_file(objects, output)
        if number < 4:
            manager.commit_epoch(session, epoch_of(number * 1_000), [output.info],
                                 tables={2: TableRules(PrefixRule(9))}, dropped_tables=[3])
    manager.pin_version("looker")
    meta_store.close()
    return url


def run(*arguments, status=0):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    return result.output


def test_version_lists_epochs_and_files(url):
    text = run("version", url)
    assert "version 3: 3 files" in text and "2021-04-01 00:00:03.000" in text
    assert "readable from   the beginning" in text
    for number in range(1, 4):
        assert f"{number:032x}" in text
    assert f"{4:032x}" not in text
    assert "1/7/" + b"000000".hex() in text and "dropped tables  3" in text


def test_sst_dump_lists_files_and_shows_one(url):
    text = run("sst-dump", url)
    assert all(f"{number:032x}" in text for number in range(1, 5)) and "in no version" in text
    text = run("sst-dump", url, f"{2:032x}", "--entries", "3")
    assert f"{ROWS:,}" in text and "entries are as written" in text and text.count("=>") == 3
    assert "1/7/" + b"000001".hex() in text
    assert "4 files" in run("sst-dump", url, "0000", status=2)


def test_sst_dump_exports_all_entries_to_arrow(url, tmp_path):
    target = tmp_path / "entries.arrow"
    text = run("sst-dump", url, f"{2:032x}", "--entries", str(ROWS), "--arrow", str(target))
    table = pa.ipc.open_file(target).read_all()
    assert f"{ROWS:,} entries written to" in text and table.num_rows == ROWS
    shown = [line for line in text.splitlines() if "=>" in line]
    assert len(shown) == ROWS
    for line, row in zip(shown, table.to_pylist(), strict=True):
        assert line == f"{shown_key(row['key'])} @ {shown_epoch(row['epoch'])}  =>  {shown_value(row['value'])}"
    assert "NAME" in run("sst-dump", url, "--arrow", str(target), status=2)


@pytest.mark.parametrize("where", ["missing/entries.arrow", "/dev/full"])
def test_a_file_that_sst_dump_cannot_write_is_a_misuse_and_no_damage(url, tmp_path, where):
    target = str(tmp_path / where)                          # an absolute one stays
    result = CliRunner().invoke(main, ["sst-dump", url, f"{2:032x}", "--arrow", target])
    assert result.exit_code == 2 and isinstance(result.exception, SystemExit)
    line, = result.stderr.splitlines()
    assert target in line and "cannot be written" in line


def test_sst_dump_of_a_damaged_file_names_it(url):
    objects = open_object_store(url)
    path = sstable_data_path(f"{2:032x}")
    data = bytearray(objects.get(path))
    data[100] ^= 1
    objects.put(path, bytes(data))
    assert "Corruption" in run("sst-dump", url, f"{2:032x}", status=1)


def test_stats_sum_levels_and_tables_and_count_strays(url):
    text = run("stats", url)
    assert f"{3 * ROWS:,}" in text and "90" in text
    assert "orphaned" in text or "in flight" in text
    assert "9 bytes" in text and "dropped" in text and "looker" in text


def test_a_whole_store_verifies(url):
    assert "6 objects" in run("verify", url) and "no damage" in run("verify", url)


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "missing", "swapped"])
@pytest.mark.parametrize("path_of", [sstable_data_path, sstable_meta_path])
def test_each_damaged_object_is_named(url, damage, path_of):
    objects = open_object_store(url)
    path, other = path_of(f"{2:032x}"), path_of(f"{3:032x}")
    data = bytearray(objects.get(path))
    if damage == "flip":
        data[len(data) // 2] ^= 4
    elif damage == "cut":
        del data[-1:]
    elif damage == "longer":
        data += b"x"
    elif damage == "swapped":
        data = objects.get(other)
    if damage == "missing":
        objects.delete([path])
    else:
        objects.put(path, bytes(data))
    text = run("verify", url, status=1)
    assert path in text and "damaged" in text and other not in text


def test_one_damage_does_not_hide_the_next(url):
    objects = open_object_store(url)
    path = sstable_data_path(f"{1:032x}")
    data = bytearray(objects.get(path))
    for offset in (10, len(data) // 2, len(data) - 10):
        data[offset] ^= 1
    objects.put(path, bytes(data))
    manager = HummockManager(open_meta_store(url), objects)
    damages = [found.damages for found in verify_version(manager.version, objects) if found.damages]
    assert [len(each) for each in damages] == [3]


def test_what_is_no_store_is_said_so(tmp_path):
    assert "there is no store" in run("version", f"file://{tmp_path}/nothing", status=1)
    assert "InvalidOption" in run("stats", "ftp://x", status=1)
    run("version", status=2)


def test_a_damaged_meta_store_is_said_so(url, tmp_path):
    database = tmp_path / "store" / "meta.sqlite"
    data = bytearray(database.read_bytes())
    data[-40:] = bytes(40)
    database.write_bytes(data)
    assert "MetaStoreCorrupt" in run("verify", url, status=1)


def test_help_describes_each_command_in_one_whole_line():
    text = CliRunner().invoke(main, ["--help"]).output
    assert text.startswith("Usage: main COMMAND URL [OPTIONS]\n")
    listed = text.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == list(main.commands)
    assert all(line.endswith(".") and not line.endswith("...") for line in listed)
