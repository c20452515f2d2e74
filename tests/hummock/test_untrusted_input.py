"""Untrusted input is refused with a named error or printed as text; it runs no code and reaches no other file."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

import hummock
from hummock.cli import main
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import FormatTooNew, HummockError, MetaStoreCorrupt, MetaStoreError
from hummock.meta import open_meta_store, records
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import CHECKPOINT, COMMITS, DELTAS, HEAD, LEASES, OBSOLETE, TASK, UPLOADS, VACUUMED, WRITER
from hummock.meta.store.base import MetaOperations
from hummock.meta.store.memory import MemoryMetaStore
from hummock.meta.upload_registry import UploadRegistry
from hummock.meta.vacuum.references import read_references
from hummock.meta.version_log import load
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.object_store.memory import MemoryObjectStore
from hummock.tools.verify import OTHERS, RECORDS, ROWS, VALUES, verify_rows, verify_sstable
from tests.support.drivers.hostile_inputs import IDENTIFIERS, JSON_ROWS, OBJECT_KEYS
from tests.support.drivers.seeds import run_seed
from tests.support.worlds.manager_parts import open_manager

ROW_KEYS = [HEAD, WRITER, CHECKPOINT, DELTAS + "0" * 20, COMMITS + "7", LEASES + "n", VACUUMED + "a" * 32,
            TASK + "1", UPLOADS + "0" * 16, OBSOLETE + "0" * 20]
COMMANDS = ["version", "levels", "stats", "sst-dump", "verify", "vacuum", "compact"]
MUTATIONS = 150


@pytest.fixture
def url(tmp_path):
    url = f"file://{tmp_path}/store"
    with hummock.open(url, role="writer", compaction=False, block_bytes=512, inline_bytes=0) as store:
        epoch = hummock.EpochGenerator().next()
        store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%04d" % n), b"v" * 9) for n in range(200)]), epoch)
        store.commit(epoch)
    return url


def run(*arguments):
    """The result of a command that exited with a status and printed no traceback and no control characters."""
    result = CliRunner().invoke(main, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (0, 1, 2) and "Traceback" not in result.output
    assert "\x1b" not in result.output and "\u202e" not in result.output
    return result


def put(url, key, row):
    meta_store = open_meta_store(url, create=False)
    meta_store.transaction(MetaOperations(put={key: row}))
    meta_store.close()


@pytest.mark.parametrize("name", [name for name in IDENTIFIERS if name != ".."], ids=range(len(IDENTIFIERS) - 1))
def test_what_is_no_name_of_a_node_registers_and_pins_nothing(name):
    meta_store = MemoryMetaStore()
    manager = open_manager(meta_store)
    for attempt in (lambda: manager.register_upload(name, "0" * 16), lambda: manager.pin_version(name),
                    lambda: UploadRegistry(manager, name).mint(), lambda: manager.claim_writer(name)):
        with pytest.raises(MetaStoreError):
            attempt()
    assert meta_store.list("") == []


@pytest.mark.parametrize("prefix", [*IDENTIFIERS, *OBJECT_KEYS], ids=range(len(IDENTIFIERS) + len(OBJECT_KEYS)))
def test_what_is_no_prefix_of_names_is_registered_nowhere(prefix):
    meta_store = MemoryMetaStore()
    manager = open_manager(meta_store)
    with pytest.raises(MetaStoreError):
        manager.register_upload("node", prefix)
    manager.release_upload("node", prefix)
    assert meta_store.list("") == []


def test_every_kind_of_row_is_known_to_who_verifies_a_store():
    kinds = {value for name, value in vars(records).items() if name.isupper() and str(value).startswith(ROWS)}
    assert kinds == {*RECORDS, *VALUES, *OTHERS}


@pytest.mark.parametrize("row", JSON_ROWS, ids=range(len(JSON_ROWS)))
@pytest.mark.parametrize("key", ROW_KEYS)
def test_a_row_that_says_nothing_is_damage_by_its_key(key, row):
    meta_store = MemoryMetaStore()
    meta_store.transaction(MetaOperations(put={key: row}))
    assert [found.path for found in verify_rows(meta_store) if found.damages] == [key]
    if key in (CHECKPOINT, COMMITS + "7") or key.startswith(DELTAS):
        return          # read only if the head or a repeated commit refers to it
    with pytest.raises((MetaStoreCorrupt, FormatTooNew)):
        read_references(meta_store, load(meta_store, MemoryObjectStore()), lambda: 0)


@pytest.mark.parametrize("row", JSON_ROWS[::3], ids=range(0, len(JSON_ROWS), 3))
@pytest.mark.parametrize("key", [HEAD, LEASES + "n", UPLOADS + "0" * 16, TASK + "1"])
def test_commands_name_a_damaged_row_in_one_line(url, key, row):
    put(url, key, row)
    for command in ("stats", "verify", "vacuum"):
        result = run(command, url)
        assert result.exit_code == 1 and (key in result.output or "hummock/" in result.output)


@pytest.mark.parametrize("bad_url", OBJECT_KEYS, ids=range(len(OBJECT_KEYS)))
def test_what_is_no_url_opens_nothing(bad_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if bad_url.startswith("file:"):
            bad_url = f"file://{tmp_path}/x/../../../../etc/passwd"
        assert run(command, bad_url).exit_code in (1, 2)
        assert run(command, "memory://", "--meta", bad_url).exit_code in (1, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", IDENTIFIERS + OBJECT_KEYS, ids=range(len(IDENTIFIERS) + len(OBJECT_KEYS)))
def test_what_is_no_name_of_a_file_dumps_nothing_else(url, name):
    result = run("sst-dump", url, "--", name) if name else run("sst-dump", url, "nothing")
    assert result.exit_code == 2 or "root:" not in result.output


def test_objects_with_strange_names_are_text_and_stay(url, tmp_path):
    objects = open_object_store(url)
    strange = ["sst/[red]x[/red].data", "sst/\u202egnp.data", "sst/" + "g" * 32 + ".meta", "sst/a b$(id).data",
               "sst/deep/er/" + "0" * 32 + ".data", "sst/.data", "sst/x"]
    for path in strange:
        objects.put(path, b"x")
    listed = run("sst-dump", url).stdout
    assert "[red]x[/red]" in listed and "\\u202egnp" in listed
    assert run("vacuum", url, "--grace", "0").exit_code == 0
    assert set(strange) <= {found.path for found in objects.list("sst/")}


@pytest.mark.parametrize("field", ["name", "smallest", "rows", "data_bytes", "id", "table_ids", "max_epoch", "codec"])
@pytest.mark.parametrize("value", [None, "../../../../etc/passwd", "[red]\x1b[2J", -1, 1 << 70, [], {}, 1.5, True])
def test_a_version_with_a_strange_file_harms_nobody(url, field, value):
    meta_store = open_meta_store(url, create=False)
    ((key, row),) = meta_store.list(DELTAS)
    record = json.loads(row)
    record["added"][0]["sstables"][0][field] = value
    meta_store.transaction(MetaOperations(put={key: json.dumps(record).encode()}))
    meta_store.close()
    for command in ("version", "levels", "stats", "verify"):
        assert "root:" not in run(command, url).output


@pytest.mark.parametrize("path_of", [sstable_data_path, sstable_meta_path])
def test_changed_bytes_of_a_file_are_refused_by_every_command(url, path_of):
    rng = random.Random(run_seed())
    objects, meta_store = open_object_store(url), open_meta_store(url, create=False)
    info = next(HummockManager(meta_store, objects).version.sstables)
    meta_store.close()
    path = path_of(info.name)
    whole = objects.get(path)
    for number in range(MUTATIONS):
        data = bytearray(whole)
        kind = rng.randrange(5)
        if kind == 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[rng.randrange(len(data)):]
        elif kind == 2:
            at = rng.randrange(len(data))
            data[at:at + 8] = rng.choice([b"\xff" * 8, bytes(8), rng.randbytes(8), b"\x7f" + b"\xff" * 7])
        elif kind == 3:
            data += rng.randbytes(rng.randrange(1, 100))
        else:
            data = bytearray(rng.randbytes(rng.randrange(1, 300)))
        if bytes(data) == whole:
            continue
        objects.put(path, bytes(data))
        found = [one for one in verify_sstable(info, objects) if one.damages]
        assert found and found[0].path == path
        if number % 10 == 0:
            assert run("verify", url).exit_code == 1
            run("sst-dump", url, info.name)


def test_the_package_never_unpickles_or_evaluates():
    root = Path(hummock.__file__).parent
    for path in [*root.rglob("*.py"), *root.rglob("*.pyx")]:
        text = path.read_text()
        for word in ("pickle.load", "import pickle", "marshal", "eval(", "exec(", "shell=True", "os.system", "yaml."):
            assert word not in text, f"{path}: {word}"


def test_errors_of_hostile_names_are_hummock_errors():
    for path in OBJECT_KEYS:
        with pytest.raises(HummockError):
            MemoryObjectStore().get(path)
