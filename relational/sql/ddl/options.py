"""WITH (name = value, …): the options of a statement. Each is taken by its name and checked, or refused.

    table                  ttl, row_format, vnode_count; connector, with the options of that connector
    source                 connector, with its options
    sink                   connector, with its options; parallelism
    materialized view      backfill, parallelism, vnode_count
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TypeVar

from sqlglot.tokens import TokenType

from relational.catalog.objects import RowFormat
from relational.errors import BindError, ParseError, shortened
from relational.expr.bind import error_span, unknown
from relational.expr.kernels.text_format import parse_interval
from relational.expr.unbound import TextSpan
from relational.sql.lexer import TokenReader
from relational.types.interval import MICROSECONDS_PER_DAY, Interval
from relational.types.vnodes import DEFAULT_VNODE_COUNT, MAX_VNODE_COUNT

CONNECTOR, TTL, ROW_FORMAT, VNODE_COUNT, BACKFILL = "connector", "ttl", "row_format", "vnode_count", "backfill"
PARALLELISM = "parallelism"
TABLE_OPTIONS = (TTL, ROW_FORMAT, VNODE_COUNT)
VIEW_OPTIONS = (BACKFILL, PARALLELISM, VNODE_COUNT)
MOST_PARALLELISM = 1_024
MAX_TTL_DAYS, MAX_TTL_CHARACTERS = 36_500, 100
_VALUES = (TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE)

Value = TypeVar("Value")
Choice = TypeVar("Choice", bound=StrEnum)


class Options:
    """The options that were not taken yet, name -> text. `spans` are their positions in an SQL text; without one an
    error has none.
    """

    def __init__(self, texts: Mapping[str, str] | None = None, spans: Mapping[str, TextSpan] | None = None) -> None:
        self._texts, self._spans = dict(texts or {}), dict(spans or {})

    def __contains__(self, name: object) -> bool:
        return name in self._texts

    def __len__(self) -> int:
        return len(self._texts)

    def take(self, name: str, read: Callable[[str], Value], default: Value) -> Value:
        """The value of an option; `default` without it. BindError at an option that `read` refuses by a ValueError."""
        text = self._texts.pop(name, None)
        if text is None:
            return default
        try:
            return read(text)
        except ValueError as refusal:
            message = f"{name} is {refusal}, not {shortened(text)!r}"
            raise BindError(message, **error_span(self._spans.get(name))) from refusal

    def take_rest(self) -> dict[str, str]:
        """All remaining options, for a connector, which checks them itself."""
        rest, self._texts = self._texts, {}
        return rest

    def refuse(self, name: str, reason: str) -> None:
        """BindError at an option that cannot be given, if it is, with the `reason`."""
        if name in self._texts:
            raise BindError(reason, **error_span(self._spans.get(name)))

    def finish(self, what: str, known: Sequence[str]) -> None:
        """BindError at an option that was not taken; it names the `known` ones of `what`."""
        for name in self._texts:
            listed = " and ".join(filter(None, (", ".join(known[:-1]), known[-1])))
            message = f"{unknown('option', name, known)} ({what} has {listed})"
            raise BindError(message, **error_span(self._spans.get(name)))


def read_options(reader: TokenReader) -> Options:
    """Parses (key = 'value', dotted.key = 3). ParseError for another value, and a key that appears twice."""
    texts: dict[str, str] = {}
    spans: dict[str, TextSpan] = {}
    reader.expect("(")
    while True:
        span = reader.span
        key = reader.name("an option")
        while reader.accept("."):
            key += "." + reader.name("an option")
        reader.expect("=")
        sign = "-" if reader.accept("-") else ""
        end = reader.span[1]
        value = reader.next()
        if value.token_type not in ((TokenType.NUMBER,) if sign else _VALUES):
            raise ParseError(f"option {key} takes a quoted text or a number", **error_span(span))
        if key in texts:
            raise ParseError(f"option {key} appears twice", **error_span(span))
        texts[key], spans[key] = sign + value.text, (span[0], end)
        if not reader.accept(","):
            break
    reader.expect(")")
    return Options(texts, spans)


def ttl_of(text: str) -> int:
    """Milliseconds of an interval, rounded up. ValueError unless it is above 0 and at most MAX_TTL_DAYS."""
    has_unit = any(each.isalpha() or each == ":" for each in text)
    interval = parse_interval(text) if has_unit and len(text) <= MAX_TTL_CHARACTERS else None
    if interval is None or not 0 < interval.total_microseconds <= MAX_TTL_DAYS * MICROSECONDS_PER_DAY:
        raise ValueError(f"an interval above 0 and up to {MAX_TTL_DAYS} days, such as '1 hour'")
    return -(-interval.total_microseconds // 1_000)


def ttl_text(ttl: int | timedelta) -> str:
    """The interval of so many milliseconds, or of a duration, as `ttl_of` reads it."""
    micros = 1_000 * ttl if isinstance(ttl, int) else ttl // timedelta(microseconds=1)
    days, rest = divmod(micros, MICROSECONDS_PER_DAY)
    return str(Interval(0, days, rest))


def choice_of(kind: type[Choice], text: str) -> Choice:
    """The member of that name; ValueError for another one."""
    try:
        return kind(text)
    except ValueError:
        raise ValueError(" or ".join(repr(each.value) for each in kind)) from None


def vnode_count_of(text: str) -> int:
    """ValueError unless it is a whole number of 1 to MAX_VNODE_COUNT."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MAX_VNODE_COUNT):
        raise ValueError(f"a whole number of 1 to {MAX_VNODE_COUNT}")
    return int(text)


def parallelism_of(text: str) -> int:
    """ValueError unless it is a whole number of 1 to MOST_PARALLELISM."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= MOST_PARALLELISM):
        raise ValueError(f"a whole number of 1 to {MOST_PARALLELISM}")
    return int(text)


def take_vnode_count(options: Options) -> int:
    return options.take(VNODE_COUNT, vnode_count_of, DEFAULT_VNODE_COUNT)


def take_row_format(options: Options) -> RowFormat:
    return options.take(ROW_FORMAT, partial(choice_of, RowFormat), RowFormat.ROW)
