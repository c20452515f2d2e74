import os

import opendal
import pytest

from hummock.errors import InvalidOption, ObjectExists, ObjectStoreError, ObjectStoreRefused
from hummock.object_store import open_object_store
from hummock.object_store.conditional_put_check import require_exclusive_creation
from hummock.object_store.opendal import TEMPORARY, OpendalObjectStore
from hummock.options import RetryOptions
from tests.support.suites.object_store_suite import ObjectStoreSuite

WITHOUT_CREATION = opendal.layers.CapabilityOverrideLayer("write_with_if_not_exists=false")


def open_directory(path, layers=()):
    return OpendalObjectStore("test://", "fs", {"root": str(path)}, RetryOptions(), layers=layers)


class TestFlatService(ObjectStoreSuite):
    """OpenDAL's memory service: flat keys, listed as by GCS, OSS and Azure."""

    @pytest.fixture
    def store(self):
        return OpendalObjectStore("test://", "memory", {}, RetryOptions(), clock=lambda: 1)


class TestStagedService(ObjectStoreSuite):
    """A file system without exclusive creation, like HDFS: objects are written to a temporary file and renamed."""

    @pytest.fixture
    def store(self, tmp_path):
        return open_directory(tmp_path, [WITHOUT_CREATION])


class TestKeys:
    def test_a_creation_is_exclusive_where_the_service_says_so(self, tmp_path):
        store = open_directory(tmp_path)
        assert store.creates_exclusively
        require_exclusive_creation(store)
        assert list(store.list()) == []

    def test_a_service_without_exclusive_creation_is_refused_for_a_log(self, tmp_path):
        store = open_directory(tmp_path, [WITHOUT_CREATION])
        store.put("a", b"1", if_absent=True)
        with pytest.raises(ObjectExists):
            store.put("a", b"2", if_absent=True)
        with pytest.raises(ObjectStoreRefused, match="create-if-absent"):
            require_exclusive_creation(store)

    def test_what_is_staged_is_no_object_and_leaves_nothing(self, tmp_path):
        store = open_directory(tmp_path, [WITHOUT_CREATION])
        store.put("sst/a", b"1")
        (tmp_path / TEMPORARY / "left-by-the-dead").write_bytes(b"x")
        assert [found.path for found in store.list()] == ["sst/a"]
        assert [path.name for path in (tmp_path / TEMPORARY).iterdir()] == ["left-by-the-dead"]
        for call in (lambda: store.get(f"{TEMPORARY}/x"), lambda: store.put(f"{TEMPORARY}/x", b"")):
            with pytest.raises(ObjectStoreRefused):
                call()

    def test_a_put_that_cannot_be_renamed_leaves_nothing(self, tmp_path):
        store = open_directory(tmp_path, [WITHOUT_CREATION])
        store.put("a", b"1")
        with pytest.raises(ObjectStoreError):
            store.put("a/b", b"2")
        assert list((tmp_path / TEMPORARY).iterdir()) == []
        assert store.get("a") == b"1"

    def test_an_object_without_age_is_new(self):
        store = OpendalObjectStore("test://", "memory", {}, RetryOptions(), clock=lambda: 77)
        store.put("a", b"")
        assert store.head("a").modified_ms == 77

    def test_a_fork_must_open_the_store_again(self, tmp_path, monkeypatch):
        store = open_directory(tmp_path)
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ObjectStoreRefused, match="forked"):
            store.get("a")


class TestUrls:
    @pytest.mark.parametrize(("url", "exclusive"), [
        ("gs://bucket/some/prefix?disable_vm_metadata=true&disable_config_load=true", True),
        ("oss://bucket/prefix?endpoint=http://127.0.0.1:9", True),
        ("azblob://container/prefix?endpoint=http://127.0.0.1:9/account&account_name=account", True),
        ("azblob://container/prefix?account_name=account", True),
        ("hdfs://127.0.0.1:9/prefix", False),
        ("webhdfs://127.0.0.1:9/prefix?user_name=me", True),
        ("webhdfs://127.0.0.1:9/prefix?tls=true", True),
    ])
    def test_each_service_opens_by_its_url_and_says_what_it_can(self, url, exclusive):
        store = open_object_store(url)
        assert store.url == url
        assert store.creates_exclusively is exclusive

    @pytest.mark.parametrize("url", ["oss://bucket/x", "azblob://container/x", "gs://bucket?credential=x", "ftp://x/y",
                                     "azblob://c?account_key=x", "webhdfs://host:1/?tls=maybe", "hdfs:///x"])
    def test_a_url_that_cannot_be_meant_is_refused(self, url, monkeypatch):
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
        with pytest.raises(InvalidOption):
            open_object_store(url)
