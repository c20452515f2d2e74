"""Rows of the registry: texts, regular expressions, bytes."""

from __future__ import annotations

import zlib
from functools import partial

import pyarrow.compute as pc

from hummock.base.checksum import crc32c_of
from relational.expr.kernels import binary, regex, strings, text_values
from relational.expr.kernels.per_value import per_value
from relational.expr.registry.operators import over_args, over_values, quantified
from relational.expr.signature import Overload, row

_TRIMS = (
    ("trim", "", text_values.trim),
    ("ltrim", "l", text_values.trim_left),
    ("rtrim", "r", text_values.trim_right),
)


def _trims() -> dict[str, tuple[Overload, ...]]:
    return {
        name: (
            row("varchar -> varchar", over_args(strings.trim, side=side)),
            row(
                "varchar, varchar -> varchar",
                strings.by_constants(partial(strings.trim, side=side), per_value(trimmed)),
            ),
            row("bytea, bytea -> bytea", per_value(trimmed)),
        )
        for name, side, trimmed in _TRIMS
    }


def _hexadecimal() -> tuple[Overload, ...]:
    return tuple(
        row(f"{data_type} -> varchar", per_value(partial(text_values.hexadecimal, bits=bits)))
        for data_type, bits in (("int", 32), ("bigint", 64))
    )


def _sent() -> dict[str, tuple[Overload, ...]]:
    """The binary form in which the protocol sends whole numbers."""
    return {
        f"int{size}send": (row(f"{data_type} -> bytea", per_value(partial(binary.bytes_of, size=size))),)
        for data_type, size in (("smallint", 2), ("int", 4), ("bigint", 8))
    }


_LIKE = strings.by_constants(partial(strings.like, ignore_case=False), per_value(regex.like))
_ILIKE = strings.by_constants(partial(strings.like, ignore_case=True), per_value(regex.ilike))
_SUBSTRING = strings.by_constants(strings.substring, per_value(text_values.substring))
_REPLACE = strings.by_constants(strings.replace, per_value(text_values.replace))
_SPLIT_PART = strings.by_constants(strings.split_part, per_value(text_values.split_part))
_STARTS_WITH = strings.by_constants(strings.starts_with, per_value(str.startswith))
_DIGESTS = ("sha224", "sha256", "sha384", "sha512")

ROWS: dict[str, tuple[Overload, ...]] = {
    "ascii": (row("varchar -> int", per_value(text_values.ascii_code)),),
    "bit_length": tuple(row(f"{each} -> int", per_value(text_values.bit_length)) for each in ("varchar", "bytea")),
    "chr": (row("int -> varchar", per_value(text_values.character)),),
    "concat_ws": (row("varchar, text... -> varchar", per_value(text_values.join_known, takes_nulls=True)),),
    "convert_from": (row("bytea, varchar -> varchar", per_value(binary.converted_from)),),
    "convert_to": (row("varchar, varchar -> bytea", per_value(binary.converted_to)),),
    "crc32": (row("bytea -> bigint", per_value(zlib.crc32)),),
    "crc32c": (row("bytea -> bigint", per_value(crc32c_of)),),
    "decode": (row("varchar, varchar -> bytea", per_value(binary.decode)),),
    "encode": (row("bytea, varchar -> varchar", per_value(binary.encode)),),
    "format": (row("varchar, text... -> varchar", per_value(text_values.formatted, takes_nulls=True)),),
    "get_bit": (row("bytea, int -> int", per_value(binary.bit_at)),),
    "get_byte": (row("bytea, int -> int", per_value(binary.byte_at)),),
    "ilike": (row("varchar, varchar -> boolean", _ILIKE),),
    "initcap": (row("varchar -> varchar", per_value(text_values.initcap)),),
    **_sent(),
    "int8recv": (row("bytea -> bigint", per_value(binary.integer_of)),),
    "left": (row("varchar, int -> varchar", strings.by_constants(strings.left, per_value(text_values.left))),),
    "length": (
        row("varchar -> int", over_values(pc.utf8_length)),
        row("bytea -> int", over_values(pc.binary_length)),
    ),
    "like": (row("varchar, varchar -> boolean", _LIKE),),
    "like_escape": (row("varchar, varchar -> varchar", per_value(regex.like_escape)),),
    "lower": (row("varchar -> varchar", over_values(pc.utf8_lower)),),
    "lpad": (row("varchar, int, varchar? -> varchar", per_value(text_values.pad_left)),),
    "md5": tuple(row(f"{each} -> varchar", per_value(binary.md5)) for each in ("varchar", "bytea")),
    "normalize": (row("varchar -> varchar", per_value(text_values.normalized)),),
    "octet_length": tuple(row(f"{each} -> int", per_value(text_values.octet_length)) for each in ("varchar", "bytea")),
    "overlay": (
        row("varchar, varchar, int, int? -> varchar", per_value(text_values.overlay)),
        row("bytea, bytea, int, int? -> bytea", per_value(text_values.overlay_bytes)),
    ),
    "position": (
        row("varchar, varchar -> int", strings.by_constants(strings.position, per_value(text_values.position))),
        row("bytea, bytea -> int", per_value(text_values.position)),
    ),
    "quote_ident": (row("varchar -> varchar", per_value(text_values.quote_identifier)),),
    "quote_literal": (row("text -> varchar", per_value(text_values.quote_literal)),),
    "quote_nullable": (row("text -> varchar", per_value(text_values.quote_nullable, takes_nulls=True)),),
    "regexp_count": (row("varchar, varchar, int?, varchar? -> int", per_value(regex.regexp_count)),),
    "regexp_instr": (
        row("varchar, varchar, int?, int?, int?, varchar?, int? -> int", per_value(regex.regexp_instr)),
    ),
    "regexp_like": (row("varchar, varchar, varchar? -> boolean", per_value(regex.regexp_like)),),
    "regexp_match": (row("varchar, varchar, varchar? -> varchar[]", per_value(regex.regexp_match)),),
    "matches": (row("varchar, varchar -> boolean", per_value(regex.matches)),),
    "imatches": (row("varchar, varchar -> boolean", per_value(regex.matches_ignoring_case)),),
    "regexp_replace": (
        row("varchar, varchar, varchar, varchar? -> varchar", per_value(regex.regexp_replace)),
        row("varchar, varchar, varchar, int, int?, varchar? -> varchar", per_value(regex.regexp_replace_from)),
    ),
    "regexp_split_to_array": (row("varchar, varchar, varchar? -> varchar[]", per_value(regex.regexp_split)),),
    "regexp_substr": (
        row("varchar, varchar, int?, int?, varchar?, int? -> varchar", per_value(regex.regexp_substr)),
    ),
    "repeat": (row("varchar, int -> varchar", per_value(text_values.repeat)),),
    "replace": (row("varchar, varchar, varchar -> varchar", _REPLACE),),
    "reverse": (
        row("varchar -> varchar", over_values(pc.utf8_reverse)),
        row("bytea -> bytea", per_value(binary.reversed_bytes)),
    ),
    "right": (row("varchar, int -> varchar", strings.by_constants(strings.right, per_value(text_values.right))),),
    "rpad": (row("varchar, int, varchar? -> varchar", per_value(text_values.pad_right)),),
    "set_bit": (row("bytea, int, int -> bytea", per_value(binary.with_bit)),),
    "set_byte": (row("bytea, int, int -> bytea", per_value(binary.with_byte)),),
    **{name: (row("bytea -> bytea", per_value(binary.digest(name))),) for name in _DIGESTS},
    "similar_to": (row("varchar, varchar -> boolean", per_value(regex.similar_to)),),
    "split_part": (row("varchar, varchar, int -> varchar", _SPLIT_PART),),
    "starts_with": (row("varchar, varchar -> boolean", _STARTS_WITH),),
    "substring": (
        row("varchar, int -> varchar", _SUBSTRING),
        row("varchar, int, int -> varchar", _SUBSTRING),
        row("bytea, int, int? -> bytea", per_value(text_values.substring)),
        row("varchar, varchar -> varchar", per_value(regex.substring)),
    ),
    "to_hex": _hexadecimal(),
    "translate": (row("varchar, varchar, varchar -> varchar", per_value(text_values.translate)),),
    "upper": (row("varchar -> varchar", over_values(pc.utf8_upper)),),
    **_trims(),
    **quantified("like", "varchar", per_value(regex.like)),
    **quantified("ilike", "varchar", per_value(regex.ilike)),
    **quantified("matches", "varchar", per_value(regex.matches)),
    **quantified("imatches", "varchar", per_value(regex.matches_ignoring_case)),
}
"""Functions of one family by their names, with an overload for each signature."""
