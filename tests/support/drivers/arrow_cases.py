"""Arrow columns in every physical layout, valid and corrupted, with the rows that a table must return.

A `Case` begins as a leaf: values of one type in one Arrow layout, of which one row may be corrupted. Wrappers slice
it, split it into chunks, encode it as a dictionary or in runs, or nest it in lists and structs; each tracks the rows
and those that must be refused. Corrupted entries that no row refers to must be ignored.
"""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from relational.types import DataType, Field, Interval

EPOCH = dt.datetime(1970, 1, 1)
MOMENT = dt.timedelta(microseconds=1)
WIDE = Context(prec=80)


@dataclass(frozen=True)
class Case:
    """`rows`: the Python values that a table returns. `wrong`: the rows that cannot be stored."""

    label: str
    data_type: DataType
    array: Any
    rows: list
    wrong: frozenset[int] = frozenset()

    @property
    def refused(self) -> int | None:
        """The row that the error must name."""
        return min(self.wrong, default=None)


# -- leaves: Arrow type, generator of values, the value that a table returns ----------------------------------


def _int(low: int, high: int) -> Callable[[random.Random], int]:
    return lambda rng: rng.choice([low, high, 0, 1, rng.randint(low, high)])


def _decimal(whole: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10 ** (whole + scale) - 1
    return lambda rng: Decimal(rng.randint(-most, most)).scaleb(-scale, WIDE)


def _text(rng: random.Random) -> str:
    return rng.choice(["", "a", "naïve", "日本語 text of more than twelve bytes", "x" * rng.randrange(40), "\0\x7f"])


def _bytes(rng: random.Random) -> bytes:
    return bytes(rng.randrange(256) for _ in range(rng.choice([0, 1, 5, 12, 13, 30])))


def _day(rng: random.Random) -> dt.date:
    return rng.choice([dt.date.min, dt.date.max, EPOCH.date(), dt.date.fromordinal(rng.randint(1, 3_652_059))])


def _moment(step: int) -> Callable[[random.Random], dt.datetime]:
    """Multiples of `step` microseconds in the years 1 to 9999."""
    least, most = -62_135_596_800_000_000 // step, 253_402_300_799_999_999 // step
    return lambda rng: EPOCH + MOMENT * step * rng.choice([least, most, 0, -1, rng.randint(least, most)])


def _recent(rng: random.Random) -> dt.datetime:
    """Within the range of nanoseconds."""
    return EPOCH + MOMENT * rng.randint(-(2**62) // 1000, 2**62 // 1000)


def _time(step: int) -> Callable[[random.Random], dt.time]:
    return lambda rng: (EPOCH + MOMENT * step * rng.randrange(86_400_000_000 // step)).time()


def _float(form: str) -> Callable[[random.Random], float]:
    special = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan")]
    return lambda rng: float(np.array(rng.choice([*special, rng.uniform(-9, 9)])).astype(form))


def _json(rng: random.Random) -> str:
    return rng.choice(['{"b": 1, "a" :[2.50, "\\u0041"]}', "null", " [ ] ", "1e2", '"x"', '{"k":1,"k":2}'])


CANONICAL = {'{"b": 1, "a" :[2.50, "\\u0041"]}': '{"a":[2.5,"A"],"b":1}', " [ ] ": "[]", "1e2": "100",
             '{"k":1,"k":2}': '{"k":2}'}  # fmt: skip


def _interval(rng: random.Random) -> Interval:
    return Interval(rng.randint(-99, 99), rng.randint(-99, 99), rng.randint(-(10**12), 10**12))


SMALL = [(pa.int8(), _int(-128, 127)), (pa.uint8(), _int(0, 255)), (pa.int16(), _int(-(2**15), 2**15 - 1))]
MIDDLE = [(pa.uint16(), _int(0, 2**16 - 1)), (pa.int32(), _int(-(2**31), 2**31 - 1))]
LARGE = [(pa.uint32(), _int(0, 2**32 - 1)), (pa.uint64(), _int(0, 2**63 - 1)), (pa.int64(), _int(-(2**63), 2**63 - 1))]
TEXTS = [pa.utf8(), pa.large_utf8(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
JSONS = [pa.json_(), pa.json_(pa.large_utf8()), pa.json_(pa.string_view())]

FORMS: dict[str, list[tuple[pa.DataType, Callable]]] = {
    "BOOLEAN": [(pa.bool_(), lambda rng: rng.random() < 0.5)],
    "SMALLINT": SMALL,
    "INT": SMALL + MIDDLE,
    "BIGINT": SMALL + MIDDLE + LARGE,
    "NUMERIC(12, 3)": [
        (pa.decimal128(12, 3), _decimal(9, 3)), (pa.decimal128(9, 2), _decimal(7, 2)), SMALL[2],
        (pa.decimal256(12, 3), _decimal(9, 3)), (pa.decimal32(9, 3), _decimal(6, 3)),
        (pa.decimal64(12, 3), _decimal(9, 3)),
    ],
    "NUMERIC(38, 0)": [(pa.decimal128(38, 0), _decimal(38, 0)), (pa.uint64(), _int(0, 2**64 - 1))],
    "REAL": [(pa.float16(), _float("f2")), (pa.float32(), _float("f4")), (pa.float64(), _float("f4"))],
    "DOUBLE": [(pa.float16(), _float("f2")), (pa.float32(), _float("f4")), (pa.float64(), _float("f8"))],
    "VARCHAR": [(form, _text) for form in TEXTS],
    "BYTEA": [(form, _bytes) for form in TEXTS[3:]] + [(pa.binary(3), lambda rng: rng.randbytes(3))],
    "DATE": [(pa.date32(), _day), (pa.date64(), _day), (pa.timestamp("s"), _day)],
    "TIME": [(pa.time32("s"), _time(10**6)), (pa.time32("ms"), _time(1000)), (pa.time64("us"), _time(1)),
             (pa.time64("ns"), _time(1))],
    "TIMESTAMP": [(pa.timestamp("s"), _moment(10**6)), (pa.timestamp("ms"), _moment(1000)),
                  (pa.timestamp("us"), _moment(1)), (pa.timestamp("ns"), _recent)],
    "TIMESTAMPTZ": [(pa.timestamp("ms", "UTC"), _moment(1000)), (pa.timestamp("us", "Europe/Berlin"), _moment(1)),
                    (pa.timestamp("ns", "+05:30"), _recent)],
    "INTERVAL": [(pa.month_day_nano_interval(), _interval)],
    "JSONB": [(form, _json) for form in TEXTS + JSONS],
}  # fmt: skip


def leaf(rng: random.Random, kind: str, form: pa.DataType, draw: Callable, fault: str | None) -> Case:
    """Some rows in one form; with a fault, one of them is corrupted."""
    values = [None if rng.random() < 0.2 else draw(rng) for _ in range(rng.randrange(4, 14))]
    label = f"{kind} as {form}" + (f", {fault}" if fault else "")
    at = None
    if fault:
        at = rng.randrange(1, len(values) - 1)
        values[0], values[at], values[at + 1] = _filled(draw, rng), _filled(draw, rng), None
    storage = form.storage_type if isinstance(form, pa.BaseExtensionType) else form
    array = _array(values, storage) if fault is None else FAULTS[fault](values, storage, at)
    if isinstance(form, pa.BaseExtensionType):
        array = pa.ExtensionArray.from_storage(form, array)
    return Case(label, DataType.parse(kind), array, [_stored(value, kind) for value in values],
                frozenset(() if at is None else (at,)))  # fmt: skip


def _filled(draw: Callable, rng: random.Random) -> Any:
    """A value that is not an empty text or byte string."""
    value = draw(rng)
    while value in ("", b""):
        value = draw(rng)
    return value


def _array(values: list, form: pa.DataType) -> pa.Array:
    if pa.types.is_interval(form):
        return pa.array([None if value is None else value.to_arrow() for value in values], form)
    if pa.types.is_float16(form):
        return pa.array([None if value is None else np.float16(value) for value in values], form)
    if pa.types.is_timestamp(form) and any(type(value) is dt.date for value in values):
        return pa.array(values, pa.date32()).cast(form)
    if form.id in (pa.binary().id, pa.large_binary().id, pa.binary_view().id):
        values = [value.encode() if isinstance(value, str) else value for value in values]
    return pa.array(values, form)


def _stored(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "JSONB":
        return CANONICAL.get(value, value)
    if kind == "NUMERIC(12, 3)":
        return Decimal(value).quantize(Decimal("0.001"))
    if kind == "NUMERIC(38, 0)":
        return Decimal(value)
    return value.replace(tzinfo=dt.UTC) if kind == "TIMESTAMPTZ" else value


# -- faults: one corrupted row --------------------------------------------------------------------------------


def _with_bytes(values: list, form: pa.DataType, at: int, wrong: bytes) -> pa.Array:
    """Replaces row `at` by bytes that `pa.array` would refuse."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    raw[at] = wrong
    plain = pa.array(raw, pa.large_binary() if pa.types.is_large_string(form) else pa.binary())
    if pa.types.is_string_view(form):
        plain = plain.cast(pa.binary_view())
    elif not (pa.types.is_string(form) or pa.types.is_large_string(form)):
        return plain.cast(form)
    return pa.Array.from_buffers(form, len(plain), plain.buffers())


def _no_utf8(values: list, form: pa.DataType, at: int) -> pa.Array:
    return _with_bytes(values, form, at, b"\xff\xfe")


def _no_json(values: list, form: pa.DataType, at: int) -> pa.Array:
    return _with_bytes(values, form, at, b'{"a":')


def _falls(values: list, form: pa.DataType, at: int) -> pa.Array:
    array = _array(values, form)
    width = np.int64 if form.id in (pa.large_utf8().id, pa.large_binary().id) else np.int32
    offsets = np.frombuffer(array.buffers()[1], width, len(array) + 1).copy()
    offsets[at + 1] = offsets[at] - 1
    validity, _, data = array.buffers()
    return pa.Array.from_buffers(form, len(array), [validity, pa.py_buffer(offsets), data])


def _view_beyond(values: list, form: pa.DataType, at: int) -> pa.Array:
    array = _array(values, form)
    views = bytearray(array.buffers()[1])
    views[16 * at : 16 * at + 16] = struct.pack("<i4sii", 10**6, b"abcd", 0, 10**6)
    data = array.buffers()[2:] or [pa.py_buffer(b"abcdefghijklmnop")]
    return pa.Array.from_buffers(form, len(array), [array.buffers()[0], pa.py_buffer(bytes(views)), *data])


def _fixed(number: Callable[[pa.DataType], Any]) -> Callable[[list, pa.DataType, int], pa.Array]:
    """Replaces row `at` by the bytes of a number."""

    def corrupted(values: list, form: pa.DataType, at: int) -> pa.Array:
        array = _array(values, form)
        wrong = np.asarray(number(form)).tobytes()
        memory = bytearray(array.buffers()[1])
        memory[len(wrong) * at : len(wrong) * (at + 1)] = wrong
        return pa.Array.from_buffers(form, len(array), [array.buffers()[0], pa.py_buffer(bytes(memory))])

    return corrupted


def _year_10000(form: pa.DataType) -> Any:
    if pa.types.is_date32(form):
        return np.int32(2_932_897)
    seconds = 253_402_300_800
    return np.int64(seconds * {"s": 1, "ms": 1000, "us": 10**6}[getattr(form, "unit", "ms")])


def _midnight(form: pa.DataType) -> Any:
    ticks = 86_400 * {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[form.unit]
    return np.int32(ticks) if form.bit_width == 32 else np.int64(ticks)


def _too_precise(form: pa.DataType) -> Any:
    digits = 10**form.precision
    return np.frombuffer(digits.to_bytes(form.bit_width // 8, "little"), np.uint8)


FAULTS: dict[str, Callable[[list, pa.DataType, int], pa.Array]] = {
    "no UTF-8": _no_utf8,
    "no JSON": _no_json,
    "offsets that fall": _falls,
    "a view beyond its buffer": _view_beyond,
    "the year 10000": _fixed(_year_10000),
    "24:00": _fixed(_midnight),
    "too many digits": _fixed(_too_precise),
    "beyond REAL": _fixed(lambda form: np.float64(1e300)),
    "beyond BIGINT": _fixed(lambda form: np.uint64(2**63)),
}


def faults_of(kind: str, form: pa.DataType) -> list[str]:
    """Possible faults of a row of this form, in a column of this kind."""
    storage = form.storage_type if isinstance(form, pa.BaseExtensionType) else form
    types, found = pa.types, []
    has_view = types.is_string_view(storage) or types.is_binary_view(storage)
    has_offsets = storage in TEXTS and not has_view
    if kind in ("VARCHAR", "JSONB") and storage in TEXTS:
        found.append("no UTF-8")
    found += ["no JSON"] * (kind == "JSONB")
    found += ["offsets that fall"] * has_offsets + ["a view beyond its buffer"] * has_view
    if types.is_date(form) or (types.is_timestamp(form) and form.unit != "ns"):
        found.append("the year 10000")
    found += ["24:00"] * types.is_time(form)
    found += ["too many digits"] * (types.is_decimal(form) and kind != "NUMERIC(38, 0)" and form.precision > 9)
    found += ["beyond REAL"] * (kind == "REAL" and form == pa.float64())
    found += ["beyond BIGINT"] * (kind == "BIGINT" and form == pa.uint64())
    return found


# -- wrappers -------------------------------------------------------------------------------------------------


def sliced(rng: random.Random, case: Case) -> Case:
    """A slice of the rows, with or without the corrupted one."""
    start = rng.randint(0, len(case.rows))
    rows = rng.randint(0, len(case.rows) - start)
    wrong = frozenset(row - start for row in case.wrong if start <= row < start + rows)
    return replace(case, label=f"{case.label}, sliced", array=case.array.slice(start, rows),
                   rows=case.rows[start : start + rows], wrong=wrong)  # fmt: skip


def chunked(rng: random.Random, case: Case) -> Case:
    cuts = sorted(rng.randint(0, len(case.rows)) for _ in range(rng.randrange(1, 4)))
    parts = [case.array.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(case.rows)], strict=True)]
    return replace(case, label=f"{case.label}, chunked", array=pa.chunked_array(parts, case.array.type))


def _picked(case: Case, positions: list, label: str, array: pa.Array) -> Case:
    rows = [None if at is None else case.rows[at] for at in positions]
    wrong = frozenset(row for row, at in enumerate(positions) if at in case.wrong)
    return replace(case, label=f"{case.label}, {label}", array=array, rows=rows, wrong=wrong)


def coded(rng: random.Random, case: Case) -> Case:
    """A dictionary, in which some entries may be unused."""
    known = range(len(case.rows))
    count = rng.randrange(12 * bool(known) + 1)
    positions: list = [None if rng.random() < 0.2 else rng.choice(known) for _ in range(count)]
    if case.refused is not None and rng.random() < 0.8:
        positions.append(case.refused)
    index = rng.choice([pa.int8(), pa.uint16(), pa.int32(), pa.int64()])
    array = pa.DictionaryArray.from_arrays(pa.array(positions, index), case.array, safe=False)
    return _picked(case, positions, "in a dictionary", array)


def in_runs(rng: random.Random, case: Case) -> Case:
    ends = np.cumsum([rng.randint(1, 3) for _ in case.rows])
    positions = np.repeat(np.arange(len(case.rows)), np.diff(ends, prepend=0)).tolist()
    form = pa.run_end_encoded(rng.choice([pa.int16(), pa.int32(), pa.int64()]), case.array.type)
    runs = pa.array(ends, form.run_end_type)
    array = pa.Array.from_buffers(form, len(positions), [None], children=[runs, case.array])
    return _picked(case, positions, "in runs", array)


def _owners(case: Case, spans: list) -> frozenset[int]:
    """The lists that contain a corrupted element."""
    return frozenset(at for at, span in enumerate(spans) if span and not case.wrong.isdisjoint(range(*span)))


def _list_case(case: Case, spans: list, array: pa.Array) -> Case:
    rows = [None if span is None else case.rows[span[0] : span[1]] for span in spans]
    return Case(f"{case.label}, in {str(array.type).split('<')[0]}", DataType.list_of(case.data_type),
                array, rows, _owners(case, spans))  # fmt: skip


def in_lists(rng: random.Random, case: Case) -> Case:
    """Lists with 32 or 64 bit offsets; elements under a NULL are ignored."""
    ends = sorted(rng.randint(0, len(case.rows)) for _ in range(rng.randrange(1, 6)))
    spans: list = [None if rng.random() < 0.25 else (a, b) for a, b in zip([0, *ends], ends, strict=False)]
    make, width = rng.choice([(pa.list_, np.int32), (pa.large_list, np.int64)])
    buffers = [_bitmap(spans), pa.py_buffer(np.array([0, *ends], width))]
    array = pa.Array.from_buffers(make(case.array.type), len(spans), buffers, children=[case.array])
    return _list_case(case, spans, array)


def in_list_views(rng: random.Random, case: Case) -> Case:
    """Overlapping lists in any order; those under a NULL have arbitrary offsets."""
    spans: list = []
    for _ in range(rng.randrange(1, 6)):
        start = rng.randint(0, len(case.rows))
        spans.append(None if rng.random() < 0.25 else (start, rng.randint(start, len(case.rows))))
    make, width = rng.choice([(pa.list_view, np.int32), (pa.large_list_view, np.int64)])
    starts = np.array([10**6 if span is None else span[0] for span in spans], width)
    sizes = np.array([7 if span is None else span[1] - span[0] for span in spans], width)
    buffers = [_bitmap(spans), pa.py_buffer(starts), pa.py_buffer(sizes)]
    array = pa.Array.from_buffers(make(case.array.type), len(spans), buffers, children=[case.array])
    return _list_case(case, spans, array)


def in_fixed_lists(rng: random.Random, case: Case) -> Case:
    size = rng.randint(1, max(1, len(case.rows)))
    starts = range(0, len(case.rows) // size * size, size)
    spans: list = [None if rng.random() < 0.25 else (start, start + size) for start in starts]
    form = pa.list_(case.array.type, size)
    return _list_case(case, spans, pa.Array.from_buffers(form, len(spans), [_bitmap(spans)], children=[case.array]))


def in_struct(rng: random.Random, case: Case) -> Case:
    """A struct with a second field; values under a NULL are ignored."""
    held = [rng.random() < 0.8 for _ in case.rows]
    numbers = list(range(len(held)))
    form = pa.struct([("n", pa.int32()), ("x", case.array.type)])
    array = pa.Array.from_buffers(form, len(held), [_bitmap([each or None for each in held])],
                                  children=[pa.array(numbers, pa.int32()), case.array])  # fmt: skip
    rows = [{"n": n, "x": x} if is_held else None for n, x, is_held in zip(numbers, case.rows, held, strict=True)]
    data_type = DataType.struct([Field("n", DataType.INT), Field("x", case.data_type)])
    wrong = frozenset(row for row in case.wrong if held[row])
    return Case(f"{case.label}, in a struct", data_type, array, rows, wrong)


def _bitmap(rows: list) -> pa.Buffer | None:
    bits = np.array([row is not None for row in rows], bool)
    return None if bits.all() else pa.py_buffer(np.packbits(bits, bitorder="little"))


ENCODED: list[Callable[[random.Random, Case], Case]] = [sliced, coded, in_runs]
NESTED: list[Callable[[random.Random, Case], Case]] = [in_lists, in_list_views, in_fixed_lists, in_struct]


def cases_of(rng: random.Random, kind: str) -> Iterator[Case]:
    """Every form of a kind, valid and with each of its faults: plain, sliced, chunked, encoded, nested in each way."""
    for form, draw in FORMS[kind]:
        for fault in [None, *faults_of(kind, form)]:
            plain = leaf(rng, kind, form, draw, fault)
            yield plain
            yield chunked(rng, plain)
            for encode in ENCODED:
                for encoded in _made(rng, plain, encode):
                    yield encoded
                    yield from _made(rng, encoded, rng.choice([sliced, coded]), chunked)
            for nest in NESTED:
                inner = rng.choice([[], [sliced], [coded], [in_runs]])
                yield from _made(rng, plain, *inner, nest, *rng.choice([[], [sliced], [chunked]]))


def _made(rng: random.Random, case: Case, *wrappers: Callable[[random.Random, Case], Case]) -> list[Case]:
    """The case in its wrappers; empty if Arrow itself detects the fault."""
    try:
        for wrap in wrappers:
            case = wrap(rng, case)
    except pa.ArrowInvalid:
        return []
    return [case]
