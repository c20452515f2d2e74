"""Ends of records: against a state machine in Python, and against the rows that pyarrow's CSV reader finds."""

import random

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from relational.chunk.text_records import edge_bytes, has_hexadecimal, record_ends
from tests.support.drivers.seeds import run_seed

COMMA, QUOTE, ESCAPE = ord(","), ord('"'), ord("\\")
CSV = {"delimiter": COMMA, "quote": QUOTE, "has_returns": True}


def reference(data, *, is_last, delimiter=-1, quote=-1, escape=-1, has_returns=False, skips_blank=False):
    ends, at, begins_value, is_quoted, start = [], 0, True, False, 0
    while at < len(data):
        byte, after = data[at], at + 1
        is_end = False
        if byte == escape:
            begins_value = False
            if after == len(data) and not is_last:
                break
            after = min(after + 1, len(data))
        elif is_quoted:
            if byte == quote:
                if after == len(data) and not is_last:
                    break
                if data[after:after + 1] == bytes([quote]):
                    after += 1
                else:
                    is_quoted = False
        elif byte == 10:
            is_end = True
        elif byte == 13 and has_returns:
            if after == len(data) and not is_last:
                break
            after += data[after:after + 1] == b"\n"
            is_end = True
        else:
            is_quoted = begins_value and byte == quote
            begins_value = byte == delimiter
        at = after
        if is_end or (at == len(data) and is_last and not is_quoted):
            blank = b"\r\n \t" if skips_blank else b"\r\n"
            if data[start:at].strip(blank):
                ends.append(at)
            start, begins_value = at, True
    return ends


@pytest.mark.parametrize(("text", "rule", "ends"), [
    (b"", {}, []),
    (b"a", {}, [1]),
    (b"a\nb\n", {}, [2, 4]),
    (b"\n\na\n\nb", {}, [4, 6]),
    (b"a\n \nb\n", {}, [2, 4, 6]),
    (b"a\n \nb\n", {"skips_blank": True}, [2, 6]),
    (b"a\rb\r\nc\r", {"has_returns": True}, [2, 5, 7]),
    (b"a\rb\r\nc\r", {}, [5, 7]),
    (b'1,"a\nb"\n2,c\n', CSV, [8, 12]),
    (b'1,a"b\n2,c"\n', CSV, [6, 11]),
    (b'1,"a""\n"\n', CSV, [9]),
    (b'1,"a\n', CSV, []),
    (b'1,"a\\"\n"\n2', CSV | {"escape": ESCAPE}, [9, 10]),
    (b"1,a\\\nb\n2", CSV | {"escape": ESCAPE}, [7, 8]),
])
def test_ends_of_examples(text, rule, ends):
    assert record_ends(text, is_last=True, **rule).tolist() == ends == reference(text, is_last=True, **rule)


def test_what_may_go_on_is_not_complete():
    for text in (b"a", b"a\r", b'"a"', b'"a', b"1,\\"):
        assert record_ends(text, is_last=False, escape=ESCAPE, **CSV).tolist() == []
    assert record_ends(b"a\r\n", is_last=False, **CSV).tolist() == [3]
    assert record_ends(b"a\rb", is_last=False, **CSV).tolist() == [2]


def test_random_texts_end_as_in_the_reference():
    rng = random.Random(run_seed())
    for _ in range(3_000):
        text = bytes(rng.choices(b'ab,,""\\\n\n\r \t', k=rng.randrange(60)))
        rule = {"skips_blank": rng.random() < 0.5, "has_returns": rng.random() < 0.7, "delimiter": COMMA}
        rule |= {"quote": rng.choice((-1, QUOTE)), "escape": rng.choice((-1, ESCAPE))}
        for is_last in (True, False):
            assert record_ends(text, is_last=is_last, **rule).tolist() == reference(text, is_last=is_last, **rule), text


def test_each_record_is_a_row_of_pyarrow():
    rng = random.Random(run_seed())
    options = csv.ReadOptions(use_threads=False, column_names=["x", "y"], block_size=1 << 20)
    pieces = [b"a", b'"a"', b'"a,b"', b'"a\n""b"', b'x"y', b"", b'"\r\n"', b'"a"b']
    for _ in range(300):
        lines = [b",".join(rng.choices(pieces, k=2)) for _ in range(rng.randint(1, 30))]
        ends = rng.choices([b"\n", b"\r\n", b"\r", b"\n\n"], k=len(lines))
        text = b"".join(line + end for line, end in zip(lines, ends, strict=True))
        rows = csv.read_csv(pa.BufferReader(text), options)
        assert len(record_ends(text, is_last=True, **CSV)) == rows.num_rows


def test_many_records_are_found_in_parts():
    lines = [b"x" * (number % 5) + b"y\n" for number in range(50_000)]
    ends = np.cumsum([len(line) for line in lines])
    assert (record_ends(b"".join(lines), is_last=False) == ends).all()


def test_edges_are_those_of_the_stripped_records():
    rng = random.Random(run_seed())
    for _ in range(500):
        text = bytes(rng.choices(b"ab{ \t\n\n\r", k=rng.randrange(40)))
        ends = record_ends(text, is_last=True, skips_blank=True)
        starts = [0, *ends.tolist()[:-1]]
        records = [text[start:end].strip(b" \t\r\n") for start, end in zip(starts, ends, strict=False)]
        first, last = edge_bytes(text, ends)
        assert bytes(first) == b"".join(record[:1] for record in records)
        assert bytes(last) == b"".join(record[-1:] for record in records)
    assert edge_bytes(b" \n", np.array([2])).tolist() == [[0], [0]]


@pytest.mark.parametrize(("text", "found"), [
    (b"", False), (b"x", False), (b"0x", True), (b"a0X1", True), (b"xX1x 0 x", False), (b"xx0xx", True), (b"0", False),
])
def test_hexadecimal_numbers_are_found(text, found):
    assert has_hexadecimal(text) is found
