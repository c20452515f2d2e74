"""Objects in a bucket of S3 or of an S3-compatible store: `s3://bucket/prefix?endpoint=...&region=...`.

A creation is a PUT with `If-None-Match: *`. Each attempt stores a random token in the object's metadata: if a request
repeated on its way is answered "exists already", the token shows that the object is its own, and the creation counts
as done if size and content match, since a deficient store may have kept the beginning of an interrupted request.
Objects larger than one part are streamed as multipart uploads, which are invisible until completed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from hashlib import md5
from itertools import islice

from hummock.errors import ObjectExists, ObjectNotFound, ObjectStoreError, ObjectStoreRefused, StoreClosed, UploadLost
from hummock.metrics import Metrics
from hummock.object_store.base import (
    Buffer,
    ObjectMeta,
    ObjectStore,
    ObjectWriter,
    RandomBytes,
    check_path,
    check_range,
)
from hummock.object_store.http import Answer
from hummock.object_store.s3_client import S3Client
from hummock.object_store.url import Address
from hummock.options import MIB, RetryOptions

OPTIONS = ("endpoint", "region", "path_style")
PART_BYTES = 16 * MIB           # a store accepts 10,000 parts of at least 5 MiB, the last one of any size
KEYS_AT_ONCE = 1000             # most keys per listing or deletion
TOKEN = "hummock-attempt"       # name of the user metadata that holds the token
STALE_UPLOAD_MS = 24 * 3600 * 1000


class S3ObjectStore(ObjectStore):
    """The objects whose keys begin with the prefix of `address`. Keys are compared by bytes, as S3 lists them."""

    def __init__(self, address: Address, retry: RetryOptions, metrics: Metrics, *, part_bytes: int = PART_BYTES,
                 random_bytes: RandomBytes = os.urandom):
        address.check_options(OPTIONS)
        self._address, self.part_bytes, self._random_bytes = address, part_bytes, random_bytes
        self._seconds = retry.deadline_ms / 1000
        self.client = S3Client(address, retry, metrics)

    @property
    def url(self) -> str:
        return self._address.url

    def put(self, path: str, data: Buffer, *, if_absent: bool = False) -> None:
        self.put_with_token(path, data, if_absent, self.mint_token(), self._seconds)

    def create(self, path: str, *, if_absent: bool = True) -> ObjectWriter:
        check_path(path)
        return _S3Writer(self, path, if_absent, self._seconds)

    def get(self, path: str, byte_range: range | None = None) -> bytes:
        key = self.key(path)
        if byte_range is None:
            return self.client.get(key, path, self._seconds, None).body
        if len(check_range(path, byte_range)) == 0:
            self.head(path)
            return b""
        answer = self.client.get(key, path, self._seconds, byte_range)
        if answer.status == 416:
            return b""
        if answer.status == 200:                # the store ignores ranges and sent everything
            return answer.body[byte_range.start:byte_range.stop]
        _check_sent_range(path, answer, byte_range)
        return answer.body

    def get_into(self, path: str, start: int, target: memoryview) -> int:
        if target.nbytes == 0:
            return len(self.get(path, range(start, start)))
        byte_range = check_range(path, range(start, start + target.nbytes))
        answer = self.client.get(self.key(path), path, self._seconds, byte_range, target)
        if answer.status == 206:
            _check_sent_range(path, answer, byte_range)
            return answer.size
        data = b"" if answer.status == 416 else answer.body[byte_range.start:byte_range.stop]
        target[:len(data)] = data
        return len(data)

    def head(self, path: str) -> ObjectMeta:
        found = self._head(path)
        return ObjectMeta(path, found["ContentLength"], int(found["LastModified"].timestamp() * 1000))

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectMeta]:
        root, last = self._address.prefix, after
        parameters = {"Prefix": root + prefix, "MaxKeys": KEYS_AT_ONCE}
        if after:
            parameters["StartAfter"] = root + after
        while True:
            page = self.client.call("list_objects_v2", prefix, self._seconds, **parameters)
            for found in page.get("Contents", ()):
                path = found["Key"].removeprefix(root)
                if path <= last:
                    raise ObjectStoreRefused(prefix, f"it lists {path!r} after {last!r}: not in the order of keys")
                last = path
                if not path.endswith("/"):      # else a directory marker of some tool
                    yield ObjectMeta(path, found["Size"], int(found["LastModified"].timestamp() * 1000))
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, paths: Sequence[str]) -> None:
        remaining = iter([(path, self.key(path)) for path in paths])
        while batch := list(islice(remaining, KEYS_AT_ONCE)):
            objects = [{"Key": key} for _, key in batch]
            answer = self.client.call("delete_objects", batch[0][0], self._seconds,
                                      Delete={"Objects": objects, "Quiet": True})
            for failed in answer.get("Errors", ()):
                code, path = failed.get("Code", ""), failed.get("Key", "").removeprefix(self._address.prefix)
                if code != "NoSuchKey":
                    kind = ObjectStoreRefused if code == "AccessDenied" else ObjectStoreError
                    raise kind(path, f"not deleted: {code}: {failed.get('Message', '')}")

    def within(self, seconds: float) -> ObjectStore:
        limited = copy(self)
        limited._seconds = seconds
        return limited

    def remove_leftovers(self, now_ms: int, kept_ms: int = STALE_UPLOAD_MS) -> int:
        """Aborts unfinished uploads below the prefix begun at least `kept_ms` ago; returns how many."""
        root = self._address.prefix
        page = self.client.call("list_multipart_uploads", "", self._seconds, Prefix=root)
        stale = [found for found in page.get("Uploads", ()) if now_ms - found["Initiated"].timestamp() * 1000 > kept_ms]
        for found in stale:
            with suppress(UploadLost):
                self.client.call("abort_multipart_upload", found["Key"].removeprefix(root), self._seconds,
                                 Key=found["Key"], UploadId=found["UploadId"])
        return len(stale)

    def close(self) -> None:
        self.client.close()

    def key(self, path: str) -> str:
        return self._address.prefix + check_path(path)

    def mint_token(self) -> str:
        return self._random_bytes(16).hex()

    def put_with_token(self, path: str, data: Buffer, if_absent: bool, token: str, seconds: float) -> None:
        """Raises `ObjectExists` if another writer created the object, and `ObjectStoreError` if the store holds only a
        part of what was sent, even after sending it again."""
        body, call = memoryview(data).cast("B"), self.client.call
        settings = {"Key": self.key(path), "Body": body, "Metadata": {TOKEN: token}}
        try:
            call("put_object", path, seconds, **settings, **({"IfNoneMatch": "*"} if if_absent else {}))
        except ObjectExists:
            found = self.written_with(token, path, seconds)
            if found is None:
                raise
            if not self._holds(found, path, body):      # the object is our own, so it may be replaced
                call("put_object", path, seconds, **settings, IfMatch=found["ETag"])
                again = self.written_with(token, path, seconds)
                if again is None or not self._holds(again, path, body):
                    raise ObjectStoreError(path, f"{body.nbytes} bytes were sent, and other ones are stored") from None

    def written_with(self, token: str, path: str, seconds: float) -> dict | None:
        """The HEAD response of the object if it was written with the token."""
        limited = self.within(seconds)
        try:
            found = limited._head(path)     # type: ignore[attr-defined]
        except ObjectNotFound:
            return None
        return found if found["Metadata"].get(TOKEN) == token else None

    def _holds(self, found: dict, path: str, body: memoryview) -> bool:
        """Whether the object is `body`: by the ETag where that is its MD5, else by reading it."""
        if found["ContentLength"] != body.nbytes:
            return False
        return found["ETag"].strip('"') == md5(body, usedforsecurity=False).hexdigest() or self.get(path) == body

    def _head(self, path: str) -> dict:
        try:
            return self.client.call("head_object", path, self._seconds, Key=self.key(path))
        except ObjectNotFound:
            self.client.call("list_objects_v2", path, self._seconds, MaxKeys=1)     # HEAD has no error code in a body
            raise


class _S3Writer(ObjectWriter):
    """Holds one part in memory. `_parts` are those uploaded; nothing is visible before completion."""

    def __init__(self, store: S3ObjectStore, path: str, if_absent: bool, seconds: float):
        self._store, self._path, self._if_absent = store, path, if_absent
        self.seconds = seconds
        self._token = store.mint_token()
        self._memory = memoryview(b"")          # of one part, allocated by the first write, reused for every part
        self._filled = 0
        self._upload: str | None = None
        self._parts: list[dict] = []
        self._sizes: dict[int, int] = {}        # part number -> size
        self._has_ended = self._is_closed = False

    def write(self, data: Buffer) -> None:
        self._check_open()
        view, size = memoryview(data).cast("B"), self._store.part_bytes
        if not self._memory:
            self._memory = memoryview(bytearray(size))
        memory, filled, parts, position = self._memory, self._filled, list(self._parts), 0
        while filled + len(view) - position >= size:
            taken = size - filled
            body = view[position:position + taken]
            if filled:
                memory[filled:] = body
                body = memory
            parts.append(self._put_part(len(parts) + 1, body))
            position, filled = position + taken, 0
        rest = len(view) - position
        memory[filled:filled + rest] = view[position:]
        self._parts, self._filled = parts, filled + rest

    def close(self) -> None:
        if self._is_closed:
            return
        self._check_open()
        try:
            if self._upload is None:
                rest = self._memory[:self._filled]
                self._store.put_with_token(self._path, rest, self._if_absent, self._token, self._left)
            else:
                if self._filled:
                    self._parts.append(self._put_part(len(self._parts) + 1, self._memory[:self._filled]))
                    self._filled = 0
                self._complete()
        except (ObjectExists, UploadLost):
            self.abort()
            raise
        self._is_closed = True
        self._end()

    def abort(self) -> None:
        if self._has_ended:
            return
        self._end()
        if self._upload is not None:
            with suppress(ObjectStoreError):        # `remove_leftovers` aborts it later
                self._call("abort_multipart_upload", UploadId=self._upload)

    def _end(self) -> None:
        self._has_ended, self._memory = True, memoryview(b"")

    def _complete(self) -> None:
        condition = {"IfNoneMatch": "*"} if self._if_absent else {}
        try:
            self._call("complete_multipart_upload", UploadId=self._upload,
                       MultipartUpload={"Parts": self._parts}, **condition)
        except (ObjectExists, UploadLost) as error:
            # An earlier request may have completed it: then the upload is gone, and the object exists and is ours.
            found = self._store.written_with(self._token, self._path, self._left)
            if found is None:
                raise
            stored, sent = (found["ContentLength"], found["ETag"].strip('"')), (self._sent, _joined_etag(self._parts))
            if stored != sent:
                raise UploadLost(self._path, f"size and ETag {sent} were sent, {stored} is stored") from error

    def _put_part(self, number: int, body: memoryview) -> dict:
        """Uploads a part; idempotent, as a part number is overwritten."""
        if self._upload is None:
            self._upload = self._call("create_multipart_upload", Metadata={TOKEN: self._token})["UploadId"]
        answer = self._call("upload_part", UploadId=self._upload, PartNumber=number, Body=body)
        self._sizes[number] = body.nbytes
        return {"PartNumber": number, "ETag": answer["ETag"]}

    @property
    def _sent(self) -> int:
        return sum(self._sizes[part["PartNumber"]] for part in self._parts)

    def _call(self, operation: str, **parameters: object) -> dict:
        return self._store.client.call(operation, self._path, self._left, Key=self._store.key(self._path), **parameters)

    @property
    def _left(self) -> float:
        assert self.seconds is not None
        return self.seconds

    def _check_open(self) -> None:
        if self._has_ended:
            raise StoreClosed(f"the writer of {self._path}")


def _joined_etag(parts: Sequence[dict]) -> str:
    """The ETag of an object of these parts: the MD5 of their MD5s, and their number; "" if their ETags are not MD5s."""
    try:
        digests = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in parts)
    except ValueError:
        return ""
    return f"{md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


def _check_sent_range(path: str, answer: Answer, asked: range) -> None:
    """Raises `ObjectStoreError` unless the answer holds the range `asked`, up to the end of the object."""
    sent = answer.headers.get("Content-Range", "")
    try:
        span, _, total = sent.removeprefix("bytes ").partition("/")
        first, _, last = span.partition("-")
        stop = asked.stop if total == "*" else min(asked.stop, int(total))
        is_whole = int(first) == asked.start and int(last) + 1 == stop and answer.size == stop - asked.start
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ObjectStoreError(path, f"asked for {asked}, was sent {sent!r} in {answer.size} bytes")
