"""Reference implementation of block payloads in plain Python, written from sstable/FORMAT.md alone."""

import struct

HEADER = struct.Struct("<IBBBBIIIIII")
ONE_EPOCH, HAS_TOMBSTONES, UNIQUE_KEYS = 1, 2, 4

Entry = tuple[bytes, int, bytes | None]


def full_key_order(entry: Entry) -> tuple[bytes, int]:
    return entry[0], -entry[1]


def width_of(lengths: list[int]) -> int:
    if min(lengths) == max(lengths):
        return 0
    return next(width for width in (1, 2, 4) if max(lengths) < 1 << 8 * width)


def lengths_bytes(lengths: list[int]) -> bytes:
    width = width_of(lengths)
    return b"".join(length.to_bytes(width, "little") for length in lengths) if width else b""


def shared_prefix(a: bytes, b: bytes) -> bytes:
    size = 0
    while size < min(len(a), len(b)) and a[size] == b[size]:
        size += 1
    return a[:size]


def encode_payload(entries: list[Entry]) -> bytes:
    keys = [key for key, _, _ in entries]
    prefix = shared_prefix(keys[0], keys[-1])
    suffixes = [key[len(prefix):] for key in keys]
    epochs = [epoch for _, epoch, _ in entries]
    values = [value or b"" for _, _, value in entries]
    deletes = [value is None for _, _, value in entries]
    flags = ONE_EPOCH * (len(set(epochs)) == 1) + HAS_TOMBSTONES * any(deletes)
    flags += UNIQUE_KEYS * (len(set(keys)) == len(keys))
    suffix_lengths, value_lengths = [len(s) for s in suffixes], [len(v) for v in values]
    widths = width_of(suffix_lengths), width_of(value_lengths)
    header = HEADER.pack(
        len(entries), flags, *widths, 0, len(prefix), 0 if widths[0] else suffix_lengths[0],
        0 if widths[1] else value_lengths[0], sum(suffix_lengths), sum(value_lengths), 0)
    stored_epochs = epochs[:1] if flags & ONE_EPOCH else epochs
    bitmap = bytes(
        sum(is_deleted << bit for bit, is_deleted in enumerate(deletes[at:at + 8])) for at in range(0, len(deletes), 8))
    return b"".join([
        header, *(epoch.to_bytes(8, "little") for epoch in stored_epochs), bitmap if any(deletes) else b"",
        lengths_bytes(suffix_lengths), lengths_bytes(value_lengths), prefix, *suffixes, *values])


def read_lengths(payload: bytes, at: int, width: int, length: int, rows: int) -> tuple[list[int], int]:
    if width == 0:
        return [length] * rows, at
    end = at + width * rows
    return [int.from_bytes(payload[one:one + width], "little") for one in range(at, end, width)], end


def decode_payload(payload: bytes) -> list[Entry]:
    (rows, flags, suffix_width, value_width, _, prefix_size, suffix_length, value_length, _, _, _) = (
        HEADER.unpack_from(payload))
    at = HEADER.size
    count = 1 if flags & ONE_EPOCH else rows
    epochs = [int.from_bytes(payload[at + 8 * row:at + 8 * row + 8], "little") for row in range(count)]
    epochs = epochs * rows if flags & ONE_EPOCH else epochs
    at += 8 * count
    deletes = [False] * rows
    if flags & HAS_TOMBSTONES:
        deletes = [bool(payload[at + row // 8] >> row % 8 & 1) for row in range(rows)]
        at += (rows + 7) // 8
    suffix_lengths, at = read_lengths(payload, at, suffix_width, suffix_length, rows)
    value_lengths, at = read_lengths(payload, at, value_width, value_length, rows)
    prefix, at = payload[at:at + prefix_size], at + prefix_size
    keys, values = [], []
    for column, lengths in ((keys, suffix_lengths), (values, value_lengths)):
        for length in lengths:
            column.append(payload[at:at + length])
            at += length
    assert at == len(payload)
    return [(prefix + key, epoch, None if is_deleted else value)
            for key, epoch, value, is_deleted in zip(keys, epochs, values, deletes, strict=True)]
