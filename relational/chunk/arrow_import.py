"""Conversion of foreign Arrow arrays to columns: validated once, and brought into the one layout of their type.

Foreign memory may be wrong in any way: decreasing or out-of-range offsets, text that is not UTF-8, decimals with too
many digits. No kernel reads a buffer before the level above it was validated. An error names the first row that cannot
be stored. Fixed-width columns that need no conversion are not copied.

* Dictionaries, run-end encoding, views, large and fixed-size layouts, `arrow.json` and maps become plain columns, at
  every level of nesting. Memory under a NULL is never read and is not kept.
* Times, intervals and durations finer than a microsecond are truncated towards the past. DATE, TIMESTAMP and
  TIMESTAMPTZ hold the years 1 to 9999.
* A duration is an INTERVAL of days and microseconds, a UUID its text.
* JSON becomes canonical. A DOUBLE for a REAL column is rounded, and rejected where it would become infinite. Every
  other conversion keeps the value, or is rejected.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from uuid import UUID as UuidValue

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.json import canonical_json
from relational.chunk.nearest_float import floats_of_decimals
from relational.errors import BindError, EncodingError, InvalidValue, shortened
from relational.types import DataType, TypeKind
from relational.types.arrow_types import JSONB_ARROW, UUID, plain_kind, what_to_do

MOST_ELEMENTS = 2**31 - 1
MICROSECONDS = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, in days since 1970
DAYS = (FIRST_DAY, LAST_DAY)
MOMENTS = (FIRST_DAY * MICROSECONDS, (LAST_DAY + 1) * MICROSECONDS - 1)
RANGES = {TypeKind.DATE: DAYS, TypeKind.TIMESTAMP: MOMENTS, TypeKind.TIMESTAMPTZ: MOMENTS}
TICKS_OF_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
SECONDS_OF_A_DAY = 86_400
INTERVAL_PARTS = np.dtype([("months", np.int32), ("days", np.int32), ("nanoseconds", np.int64)])
SHOWN_REASON = 300


class _Refused(Exception):
    """A row that cannot be stored, by its position in the current array; None: no row in particular. `is_first`: it is
    the first such row, or it is so far into the array that a search before it would exhaust memory.
    """

    def __init__(self, row: int | None, reason: str, is_first: bool = False) -> None:
        super().__init__(reason)
        self.row, self.reason, self.is_first = row, reason, is_first


def imported(array: pa.Array | pa.ChunkedArray, data_type: DataType, column: str | None = None) -> pa.Array:
    """`array` as a column of `data_type`, validated; errors name `column`.

    InvalidValue names the first row that the type cannot represent, counted over all chunks from 0, or no row if
    Arrow's type has no conversion to `data_type`.
    """
    try:
        return _whole(array, data_type)
    except _Refused as refused:
        raise InvalidValue(refused.reason, column_name=column, row=refused.row) from None
    except BindError as error:
        raise InvalidValue(str(error), column_name=column) from error


def check_frame(frame: object) -> None:
    """BindError for a frame of Polars with a column of Python objects: it exports their addresses as bytes."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(frame, polars.DataFrame):
        return
    for name, kind in frame.schema.items():
        if kind == polars.Object:
            raise BindError(f"column {name!r} has Python objects, which Polars does not export: convert them to a type "
                            "of Polars, or leave the column out")


def in_layout(array: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """As `imported`, for an array built here: one already in the layout of `data_type` is trusted and returned.
    BindError if there is no conversion, InvalidValue if a value does not fit.
    """
    if array.type == data_type.arrow and not isinstance(array, pa.ChunkedArray):
        return array
    try:
        return _whole(array, data_type)
    except _Refused as refused:
        raise InvalidValue(refused.reason, row=refused.row) from None


def has_range(data_type: DataType) -> bool:
    """Whether `check_ranges` looks at values of this type."""
    return any(data_type.contains(kind) for kind in RANGES)


def check_ranges(array: pa.Array, data_type: DataType) -> None:
    """InvalidValue for the first row of a column, in its own layout, with a date or time outside the years 1 to 9999 at
    any level.
    """
    if not has_range(data_type):
        return
    try:
        _check_ranges(array, data_type)
    except _Refused as refused:
        raise InvalidValue(refused.reason, row=refused.row) from None


def _check_ranges(array: pa.Array, data_type: DataType) -> None:
    if data_type.kind is TypeKind.STRUCT:
        for child, field in zip(array.flatten(), data_type.fields, strict=True):
            _check_ranges(child, field.data_type)
    elif data_type.element is not None:
        offsets = array.offsets.to_numpy() if len(array) else np.zeros(1, np.int32)
        try:
            _check_ranges(array.values.slice(offsets[0], offsets[-1] - offsets[0]), data_type.element)
        except _Refused as refused:
            raise _Refused(_owner(refused.row, offsets[:-1] - offsets[0], np.diff(offsets)), refused.reason) from None
    elif data_type.kind in RANGES:
        _check_range(array, data_type)


def _whole(array: pa.Array | pa.ChunkedArray, data_type: DataType) -> pa.Array:
    """All chunks in one array."""
    if not isinstance(array, pa.ChunkedArray):
        return _one_chunk(array, data_type)
    parts, rows = [], 0
    for chunk in array.chunks:
        try:
            parts.append(_one_chunk(chunk, data_type))
        except _Refused as refused:
            raise _Refused(None if refused.row is None else rows + refused.row, refused.reason) from None
        rows += len(chunk)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return pa.nulls(0, data_type.arrow)
    try:
        return pa.concat_arrays(parts)
    except pa.ArrowException as error:
        raise _Refused(None, f"send fewer rows at once: {_shown(error)}") from None


def _one_chunk(array: pa.Array, data_type: DataType) -> pa.Array:
    """The converted array. If its values are nested or indirect, the first rejected value need not belong to the first
    invalid row: that row is searched for among the rows before.
    """
    try:
        return _converted(array, data_type)
    except _Refused as refused:
        has_parts = array.type.num_fields or pa.types.is_dictionary(array.type)
        if refused.row is None or refused.is_first or not has_parts:
            raise
        sound, faulty = 0, refused.row + 1
    while faulty - sound > 1:
        middle = (sound + faulty) // 2
        try:
            _converted(array.slice(sound, middle - sound), data_type)
            sound = middle
        except _Refused:
            faulty = middle
    try:
        return _converted(array.slice(sound, 1), data_type)
    except _Refused as refused:
        raise _Refused(sound, refused.reason) from None


def _converted(array: pa.Array, data_type: DataType) -> pa.Array:
    arrow, types = array.type, pa.types
    _shallow_check(array)
    if types.is_dictionary(arrow):
        return _from_dictionary(array, data_type)
    if types.is_run_end_encoded(arrow):
        return _from_runs(array, data_type)
    if types.is_null(arrow):
        return pa.nulls(len(array), data_type.arrow)
    if isinstance(array, pa.ExtensionArray):
        if plain_kind(arrow) not in (data_type.kind.name, "JSONB"):
            raise BindError(f"Arrow's {arrow} cannot be {data_type}: {what_to_do(arrow)}")
        array = _uuid_texts(array.storage) if arrow.extension_name == UUID else array.storage
    if data_type.kind is TypeKind.STRUCT:
        return _struct(array, data_type)
    if data_type.element is not None:
        return _list(array, data_type, data_type.element)
    return _leaf(array, data_type)


def _shallow_check(array: pa.Array) -> None:
    """Checks that the buffers of this level are present and long enough."""
    try:
        array.validate()
    except pa.ArrowException:
        _attempt(_validated, array, "this is no sound Arrow array: ")


# -- values without nested values ----------------------------------------------------------------------------


def _leaf(array: pa.Array, data_type: DataType) -> pa.Array:
    _attempt(_validated, array, "")
    array = _plain(array, data_type)
    if data_type.kind is TypeKind.JSONB:
        return _json(array)
    if data_type.kind in RANGES:
        _check_range(array, data_type)
    elif data_type.kind is TypeKind.INTERVAL:
        return _whole_microseconds(array)
    return array


def _validated(array: pa.Array) -> pa.Array:
    array.validate(full=True)
    return array


def _plain(array: pa.Array, data_type: DataType) -> pa.Array:
    """Validated values in the layout of a plain type, JSON as text."""
    wanted = pa.utf8() if data_type.kind is TypeKind.JSONB else data_type.arrow
    if array.type == wanted:
        return array
    if pa.types.is_duration(array.type) and data_type.kind is TypeKind.INTERVAL:
        return _intervals(array)
    given = DataType.from_arrow(array.type)
    if not _is_convertible(given, data_type):
        raise BindError(f"Arrow's {array.type} cannot be {data_type}: cast it before")
    if _is_nanoseconds(array.type) and data_type.kind in (TypeKind.TIME, *RANGES):
        array = _microseconds(array, given)
    elif array.type == pa.float16():
        array = array.cast(pa.float32())
    elif pa.types.is_integer(array.type) and data_type.kind is TypeKind.NUMERIC:
        array = array.cast(pa.decimal128(20, 0))
    elif given.kind is TypeKind.VARCHAR:
        array = _attempt(lambda part: part.cast(pa.utf8()), array, "")
    return _attempt(lambda part: cast_array(part, wanted), array, f"no value of {data_type}: ")


def _is_convertible(given: DataType, wanted: DataType) -> bool:
    if given.kind is wanted.kind or (given.is_numeric and wanted.is_numeric) or wanted.kind is TypeKind.VARCHAR:
        return not given.is_nested and given.kind is not TypeKind.INTERVAL
    if given.kind is TypeKind.VARCHAR:
        return wanted.kind not in (TypeKind.INTERVAL, TypeKind.TIME)
    if given.kind is TypeKind.BYTEA:
        return wanted.kind is TypeKind.JSONB
    return given.kind in RANGES and wanted.kind in RANGES


def cast_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Arrow's safe cast, plus checks for what it accepts, with the nearest float of a decimal. pa.ArrowException for a
    value that would change otherwise.
    """
    types = pa.types
    if types.is_floating(wanted) and types.is_decimal(array.type):
        if array.type.bit_width <= 128 and array.type.scale >= 0:
            return floats_of_decimals(array, wanted)
        array = array.cast(pa.string())  # no NUMERIC holds it
    result = array.cast(wanted)
    if types.is_floating(wanted) and types.is_floating(array.type):
        fault, lost = "out of range", pc.and_(pc.is_inf(result), pc.invert(pc.is_inf(array)))
    elif types.is_floating(wanted) and types.is_string(array.type):
        is_said = pc.match_substring(array, "inf", ignore_case=True)
        fault, lost = "out of range", pc.and_(pc.is_inf(result), pc.invert(is_said))
    elif types.is_integer(wanted) and types.is_string(array.type):
        fault, lost = "it is no decimal number", pc.match_substring(array, "x", ignore_case=True)
    elif types.is_date32(wanted) and types.is_timestamp(array.type):
        fault, lost = "it has a time of day", pc.not_equal(result.cast(array.type), array)
    else:
        return result
    if pc.any(lost).as_py():
        raise pa.ArrowInvalid(fault)
    return result


def cast_values(array: pa.Array, data_type: DataType) -> pa.Array:
    """`array` in the layout of `data_type`, as `cast_array` casts it, or as `imported` converts what that refuses:
    times in nanoseconds, durations and UUIDs. pa.ArrowException, NotImplementedError, InvalidValue."""
    if array.type == data_type.arrow:
        return array
    if _has_no_cast(array.type) and not data_type.is_numeric:
        return imported(array, data_type)
    return cast_array(array, data_type.arrow)


def _has_no_cast(arrow: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow):
        return _has_no_cast(arrow.value_type)
    is_uuid = isinstance(arrow, pa.BaseExtensionType) and arrow.extension_name == UUID
    parts = [arrow.field(at).type for at in range(arrow.num_fields)]
    return is_uuid or _is_nanoseconds(arrow) or pa.types.is_duration(arrow) or any(map(_has_no_cast, parts))


def _is_nanoseconds(arrow: pa.DataType) -> bool:
    return (pa.types.is_timestamp(arrow) or pa.types.is_time64(arrow)) and arrow.unit == "ns"


def _microseconds(array: pa.Array, given: DataType) -> pa.Array:
    """Times in nanoseconds as microseconds, rounded down."""
    rows = len(array)
    ticks = np.frombuffer(array.buffers()[1], np.int64, rows, 8 * array.offset) if rows else np.empty(0, np.int64)
    return pa.Array.from_buffers(given.arrow, rows, [_validity(array), pa.py_buffer(ticks // 1000)])


def _intervals(array: pa.Array) -> pa.Array:
    """Durations as days, and nanoseconds that are less than a day and not negative."""
    rows = len(array)
    if not rows:
        return pa.nulls(0, DataType.INTERVAL.arrow)
    ticks = array.cast(pa.int64()).fill_null(0).to_numpy()
    of_second = TICKS_OF_A_SECOND[array.type.unit]
    days, rest = np.divmod(ticks, of_second * SECONDS_OF_A_DAY)
    far = np.abs(days) > np.iinfo(np.int32).max
    if far.any():
        row = int(np.argmax(far))
        raise _Refused(row, f"an INTERVAL has at most 2**31 - 1 days, not {days[row]}")
    parts = np.zeros(rows, INTERVAL_PARTS)
    parts["days"], parts["nanoseconds"] = days, rest * (TICKS_OF_A_SECOND["ns"] // of_second)
    return pa.Array.from_buffers(DataType.INTERVAL.arrow, rows, [_validity(array), pa.py_buffer(parts)])


def _uuid_texts(array: pa.Array) -> pa.Array:
    """`xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` of values of 16 bytes."""
    _attempt(_validated, array, "")
    texts = [None if value is None else str(UuidValue(bytes=value)) for value in array.to_pylist()]
    return pa.array(texts, pa.utf8())


def _whole_microseconds(array: pa.Array) -> pa.Array:
    """Intervals rounded down to whole microseconds."""
    rows = len(array)
    parts = np.frombuffer(array.buffers()[1], INTERVAL_PARTS, rows, 16 * array.offset) if rows else None
    if parts is None or not (parts["nanoseconds"] % 1000).any():
        return array
    cut = parts.copy()
    cut["nanoseconds"] -= cut["nanoseconds"] % 1000
    return pa.Array.from_buffers(array.type, rows, [_validity(array), pa.py_buffer(cut.tobytes())])


def _json(texts: pa.Array) -> pa.Array:
    try:
        return pa.ExtensionArray.from_storage(JSONB_ARROW, canonical_json(texts))
    except EncodingError as error:
        raise _Refused(error.row, shortened(error.reason, SHOWN_REASON)) from None


def _check_range(array: pa.Array, data_type: DataType) -> None:
    """Checks that dates and times are within the years 1 to 9999."""
    least, most = RANGES[data_type.kind]
    numbers = array.view(pa.int32() if data_type.kind is TypeKind.DATE else pa.int64())
    found = pc.min_max(numbers)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is None or (least <= low and high <= most):
        return
    outside = pc.or_(pc.less(numbers, least), pc.greater(numbers, most))
    row = pc.index(outside, True).as_py()
    unit = "days" if data_type.kind is TypeKind.DATE else "microseconds"
    raise _Refused(row, f"{data_type} holds the years 1 to 9999, not {numbers[row]} {unit} since 1970")


def _attempt(convert: Callable[[pa.Array], pa.Array], array: pa.Array, prefix: str) -> pa.Array:
    """`convert(array)`, or _Refused with the first row that it fails for. BindError if there is no conversion at all.
    """
    try:
        return convert(array)
    except pa.ArrowNotImplementedError as error:
        raise BindError(_shown(error)) from None
    except pa.ArrowException as error:
        failure: Exception = error
    sound, faulty = 0, len(array)  # rows before `sound` pass; rows before `faulty` do not
    while faulty - sound > 1:
        middle = (sound + faulty) // 2
        try:
            convert(array.slice(sound, middle - sound))
            sound = middle
        except pa.ArrowException:
            faulty = middle
    try:
        convert(array.slice(sound, 1))
    except pa.ArrowException as error:
        raise _Refused(sound, prefix + _shown(error)) from None
    raise _Refused(None, prefix + _shown(failure)) from None


def _shown(error: Exception) -> str:
    """Arrow's message about one row, without its position in the one-row array."""
    text = str(error)
    return "these bytes are not UTF-8" if "UTF8" in text else shortened(text, SHOWN_REASON)


# -- nested values -------------------------------------------------------------------------------------------


def _struct(array: pa.Array, data_type: DataType) -> pa.Array:
    names = [field.name for field in array.type] if pa.types.is_struct(array.type) else []
    if sorted(names) != sorted(field.name for field in data_type.fields):
        raise BindError(f"{shortened(str(array.type))} does not have the fields of {shortened(str(data_type))}")
    children = []
    for field in data_type.fields:
        try:
            children.append(_field(array, names.index(field.name), field.data_type))
        except _Refused as refused:
            reason = f"field {shortened(field.name)!r}: {refused.reason}"
            raise _Refused(refused.row, reason, refused.is_first) from None
    return pa.Array.from_buffers(data_type.arrow, len(array), [_validity(array)], children=children)


def _field(array: pa.Array, position: int, data_type: DataType) -> pa.Array:
    """A field of a struct, NULL where the struct is."""
    values = array.field(position)
    if not array.null_count:
        return _converted(values, data_type)
    return _converted_at(values, 0, len(array), np.arange(len(array)), data_type, array.is_valid())


def _list(array: pa.Array, data_type: DataType, element: DataType) -> pa.Array:
    """Omits elements outside every row, and those under a NULL."""
    starts, sizes, values = _elements(array, data_type)
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    if total > MOST_ELEMENTS:
        row = int(np.searchsorted(ends, MOST_ELEMENTS, side="right"))
        raise _Refused(row, f"a column of lists holds 2**31 - 1 elements, not {total}", is_first=True)
    child = _held_elements(values, starts, sizes, element)
    offsets = np.zeros(len(array) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(
        data_type.arrow, len(array), [_validity(array), pa.py_buffer(offsets)], children=[child]
    )


def _held_elements(values: pa.Array, starts: np.ndarray, sizes: np.ndarray, element: DataType) -> pa.Array:
    """The elements of all rows, row after row."""
    held = np.flatnonzero(sizes)
    if not len(held):
        return pa.nulls(0, element.arrow)
    first, last = int(starts[held].min()), int((starts + sizes)[held].max())
    ends = np.cumsum(sizes)
    moved = starts - (ends - sizes)
    positions = None
    if last - first != ends[-1] or (moved[held] != first).any():
        positions = np.repeat(moved, sizes) + np.arange(ends[-1])
    try:
        return _converted_at(values, first, last, positions, element)
    except _Refused as refused:
        raise _Refused(_owner(refused.row, starts, sizes), refused.reason, refused.is_first) from None


def _elements(array: pa.Array, data_type: DataType) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """(first element int64[rows], element counts int64[rows], the elements) of an array of any list type; a NULL has
    none. All ranges are within the elements.
    """
    arrow, types, rows = array.type, pa.types, len(array)
    if types.is_fixed_size_list(arrow):
        starts = np.arange(array.offset, array.offset + rows, dtype=np.int64) * arrow.list_size
        sizes, values = np.full(rows, arrow.list_size, np.int64), array.values
    elif types.is_list_view(arrow) or types.is_large_list_view(arrow):
        starts = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
        sizes, values = array.sizes.to_numpy(zero_copy_only=False).astype(np.int64), array.values
    elif types.is_list(arrow) or types.is_large_list(arrow) or types.is_map(arrow):
        offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64) if rows else np.zeros(1, np.int64)
        starts, sizes, values = offsets[:-1], np.diff(offsets), _pairs(array) if types.is_map(arrow) else array.values
    else:
        raise BindError(f"{shortened(str(arrow))} is no list, so it cannot be {shortened(str(data_type))}")
    if array.null_count:
        sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
    wrong = (sizes < 0) | ((sizes > 0) & ((starts < 0) | (starts > len(values) - sizes)))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _Refused(row, f"a list of {sizes[row]} elements from {starts[row]} on, of {len(values)} that there are")
    return starts, sizes, values


def _pairs(array: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])


def _owner(element: int | None, starts: np.ndarray, sizes: np.ndarray) -> int | None:
    """The first row whose list contains an element; None if no row does."""
    if element is None:
        return None
    return _first((starts <= element) & (element < starts + sizes))


def _first(mask: np.ndarray) -> int | None:
    return int(np.argmax(mask)) if mask.any() else None


# -- values stored once for many rows ------------------------------------------------------------------------


def _from_dictionary(array: pa.Array, data_type: DataType) -> pa.Array:
    indices, known = array.indices, len(array.dictionary)
    found = pc.min_max(indices)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is not None and not 0 <= least <= most < known:
        wrong = pc.or_(pc.less(indices, 0), pc.greater_equal(indices, known))
        row = pc.index(wrong, True).as_py()
        raise _Refused(row, f"entry {indices[row]} of a dictionary of {known}")
    entries = indices.fill_null(0).cast(pa.int64()).to_numpy() if known else np.zeros(len(array), np.int64)
    try:
        return _converted_at(array.dictionary, 0, known, entries, data_type, indices.is_valid())
    except _Refused as refused:
        row = None if refused.row is None else pc.index(indices, refused.row).as_py()
        raise _Refused(None if row == -1 else row, refused.reason) from None


def _from_runs(array: pa.Array, data_type: DataType) -> pa.Array:
    ends = array.run_ends.to_numpy(zero_copy_only=False).astype(np.int64)
    rows = len(array)
    if (np.diff(ends, prepend=0) <= 0).any() or (rows and (not len(ends) or ends[-1] < array.offset + rows)):
        raise _Refused(None, "the ends of runs do not ascend to the number of rows")
    runs = np.searchsorted(ends, np.arange(array.offset, array.offset + rows), side="right")
    if not rows:
        return pa.nulls(0, data_type.arrow)
    try:
        return _converted_at(array.values, int(runs[0]), int(runs[-1]) + 1, runs, data_type)
    except _Refused as refused:
        raise _Refused(None if refused.row is None else _first(runs == refused.row), refused.reason) from None


def _converted_at(
    values: pa.Array,
    first: int,
    last: int,
    positions: np.ndarray | None,
    data_type: DataType,
    is_valid: pa.Array | None = None,
) -> pa.Array:
    """`values` from `first` to `last`, or those at `positions`, NULL where not `is_valid`. _Refused with the position
    of one that cannot be stored; unreferenced values may be anything.
    """
    try:
        converted = _converted(values.slice(first, last - first), data_type)
    except _Refused as refused:
        row = None if refused.row is None else first + refused.row
        if row is None or positions is None or refused.is_first:
            raise _Refused(row, refused.reason, refused.is_first) from None
        used = np.unique(positions if is_valid is None else positions[is_valid.to_numpy(zero_copy_only=False)])
        if row in used:
            raise _Refused(row, refused.reason) from None
        converted = _converted_runs(values, used, data_type)
        positions, first = np.searchsorted(used, positions), 0
    if positions is None:
        return converted
    indices = pa.array(positions - first, mask=None if is_valid is None else ~is_valid.to_numpy(zero_copy_only=False))
    try:
        return converted.take(indices)
    except pa.ArrowException as error:
        raise _Refused(None, f"send fewer rows at once: {_shown(error)}") from None


def _converted_runs(values: pa.Array, used: np.ndarray, data_type: DataType) -> pa.Array:
    """The values at ascending positions, without reading those between."""
    parts = [pa.nulls(0, data_type.arrow)]
    for run in np.split(used, np.flatnonzero(np.diff(used) > 1) + 1) if len(used) else ():
        try:
            parts.append(_converted(values.slice(run[0], len(run)), data_type))
        except _Refused as refused:
            raise _Refused(None if refused.row is None else int(run[0]) + refused.row, refused.reason) from None
    return pa.concat_arrays(parts)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """The bitmap of an array, row 0 at bit 0; None where no row is NULL."""
    if not array.null_count:
        return None
    buffer = array.buffers()[0]
    if array.offset % 8 == 0 and buffer is not None:
        return buffer.slice(array.offset // 8)
    return pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))
