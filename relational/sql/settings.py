"""Settings of a session: the names that SET, RESET and SHOW know, with their values as texts.

A setting is accepted only if this engine does what its value says, or if its value cannot change an answer:

* effective ones: `rw_implicit_flush`, `query_epoch`, `parallelism`, `streaming_enable_delta_join`,
  `enable_two_phase_agg`, `force_two_phase_agg`;
* facts that clients set or ask for, with the values that hold here: `TimeZone` is UTC, texts are UTF8;
* RisingWave's choices among plans of one answer (`rw_enable_join_ordering`), which are kept and shown only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hummock.epoch import MAX_EPOCH, pure_epoch
from relational.errors import BindError
from relational.expr.bind import error_span, unknown
from relational.plan.agg_phases import phases_of
from relational.plan.logical import AggPhases
from relational.sql.ddl.options import PARALLELISM, parallelism_of
from relational.sql.lexer import TokenReader
from relational.sql.statement import SetOption, ShowOptions

DEFAULT = "default"
IMPLICIT_FLUSH = "rw_implicit_flush"
QUERY_EPOCH = "query_epoch"
DELTA_JOIN = "streaming_enable_delta_join"
TWO_PHASE_AGG, FORCED_TWO_PHASE_AGG = "enable_two_phase_agg", "force_two_phase_agg"
MOST_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True)
class Setting:
    """`read` gives the text under which a written value is kept; ValueError describes the values that there are.
    `is_fixed`: no statement sets it.
    """

    default: str
    read: Callable[[str], str]
    meaning: str
    is_fixed: bool = False


def _bool(text: str) -> str:
    if text.lower() in ("true", "on", "t", "yes", "1"):
        return "true"
    if text.lower() in ("false", "off", "f", "no", "0"):
        return "false"
    raise ValueError("true or false")


def _one_of(*values: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        found = next((value for value in values if value.lower() == text.lower()), None)
        if found is None:
            raise ValueError(" or ".join(map(repr, values)))
        return found

    return read


def _parallelism(text: str) -> str:
    return text if text == DEFAULT else str(parallelism_of(text))


def _epoch(text: str) -> str:
    if not (text.isascii() and text.isdigit()) or int(text) > MAX_EPOCH:
        raise ValueError(f"an epoch, a number of 1 to {MAX_EPOCH}, or 0 for the newest one")
    return str(pure_epoch(int(text)))


def _text(text: str) -> str:
    if len(text) > MOST_CHARACTERS or not text.isprintable():
        raise ValueError(f"a text of up to {MOST_CHARACTERS} characters that can be printed")
    return text


def _utc(text: str) -> str:
    if text.lower() not in ("utc", "gmt", "etc/utc", "zulu", "0", "+00:00", "+00"):
        raise ValueError("UTC: write AT TIME ZONE for times of other zones")
    return "UTC"


def _zero(text: str) -> str:
    if text.rstrip("smin") != "0":
        raise ValueError("0: there is no such limit")
    return "0"


def _search_path(text: str) -> str:
    schemas = [each.strip().strip('"') for each in text.split(",")]
    if [each for each in schemas if each not in ("$user", "pg_catalog")] != ["public"]:
        raise ValueError("public: write schema.name for objects of other schemas")
    return ", ".join(f'"{each}"' if each == "$user" else each for each in schemas)


def _fixed(value: str, meaning: str) -> Setting:
    return Setting(value, _one_of(value), meaning, is_fixed=True)


_PLAN = "RisingWave's choice among plans of one answer; kept, and without effect"
_PLANS = {
    "batch_enable_distributed_dml": False,
    "enable_join_ordering": True,
    "enable_share_plan": True,
    "force_split_distinct_agg": False,
    "rw_batch_enable_lookup_join": True,
    "rw_batch_enable_sort_agg": True,
    "streaming_enable_bushy_join": True,
    "streaming_separate_consecutive_join": False,
    "streaming_use_arrangement_backfill": True,
    "streaming_use_shared_source": True,
    "streaming_use_snapshot_backfill": False,
}
"""With their defaults there."""
SETTINGS: Mapping[str, Setting] = {
    IMPLICIT_FLUSH: Setting("false", _bool, "INSERT, UPDATE and DELETE return when their changes are committed"),
    PARALLELISM: Setting(DEFAULT, _parallelism, "actors of each fragment of jobs that are created from now on"),
    QUERY_EPOCH: Setting("0", _epoch, "the epoch at which queries read tables and views; 0: the newest one"),
    DELTA_JOIN: Setting("false", _bool, "joins of views created from now on keep no rows that tables and indexes have"),
    TWO_PHASE_AGG: Setting("true", _bool, "jobs that are created from now on may aggregate before an exchange too"),
    FORCED_TWO_PHASE_AGG: Setting("false", _bool, "where they can, they always do so, not only if it makes few groups"),
    "timezone": Setting("UTC", _utc, "the zone of texts of TIMESTAMPTZ"),
    "search_path": Setting('"$user", public', _search_path, "the schema of names without one"),
    "visibility_mode": Setting(DEFAULT, _one_of(DEFAULT, "checkpoint"), "reads are of committed changes"),
    "transaction_isolation": Setting(
        "repeatable read",
        _one_of("repeatable read", "read committed", "read uncommitted", "serializable"),
        "a statement reads one committed epoch, and the next one no earlier epoch",
    ),
    "application_name": Setting("", _text, "the name of the client"),
    "client_encoding": Setting("UTF8", _one_of("UTF8", "utf-8", "unicode"), "the encoding of texts"),
    "client_min_messages": Setting(
        "notice", _one_of("notice", "warning", "error", "log", "info", "debug"), "the level of notices; there are none"
    ),
    "datestyle": Setting("ISO, DMY", _one_of("ISO, DMY", "ISO, MDY", "ISO, YMD", "ISO"), "dates are year-month-day"),
    "intervalstyle": Setting("postgres", _one_of("postgres"), "the text of an INTERVAL"),
    "bytea_output": Setting("hex", _one_of("hex"), "the text of a BYTEA"),
    "standard_conforming_strings": Setting("on", _one_of("on", "true"), "a backslash in '…' is a character"),
    "extra_float_digits": Setting("1", _one_of("1", "2", "3"), "texts of DOUBLE have all their digits"),
    "row_security": Setting("on", _one_of("on", "off"), "there are no policies"),
    "statement_timeout": Setting("0", _zero, "how long a statement may take; there is no limit"),
    "lock_timeout": Setting("0", _zero, "how long a statement waits for a lock; there are none"),
    "idle_in_transaction_session_timeout": Setting("0", _zero, "how long a transaction may wait; there is no limit"),
    "server_version": _fixed("15.0", "the version of PostgreSQL whose answers are given"),
    "server_version_num": _fixed("150000", "the version of PostgreSQL whose answers are given"),
    "server_encoding": _fixed("UTF8", "the encoding of stored texts"),
    "integer_datetimes": _fixed("on", "times are whole microseconds"),
    "max_identifier_length": _fixed("63", "characters of a name"),
    "is_superuser": _fixed("on", "there are no roles"),
    "query_mode": Setting("auto", _one_of("auto", "local", "distributed"), _PLAN),
    "batch_parallelism": Setting(DEFAULT, _text, _PLAN),
    **{name: Setting(_bool(str(value)), _bool, _PLAN) for name, value in _PLANS.items()},
}
"""By name, in lower case; `_SYNONYMS` lead to these."""
_SYNONYMS = {
    "implicit_flush": IMPLICIT_FLUSH,
    "streaming_parallelism": PARALLELISM,
    "default_transaction_isolation": "transaction_isolation",
    "rw_enable_join_ordering": "enable_join_ordering",
    "rw_enable_share_plan": "enable_share_plan",
    "rw_enable_two_phase_agg": TWO_PHASE_AGG,
    "rw_force_split_distinct_agg": "force_split_distinct_agg",
    "rw_force_two_phase_agg": FORCED_TWO_PHASE_AGG,
    "rw_streaming_enable_bushy_join": "streaming_enable_bushy_join",
    "rw_streaming_enable_delta_join": DELTA_JOIN,
}
_PHRASES = {
    ("TIME", "ZONE"): "timezone",
    ("TRANSACTION", "ISOLATION", "LEVEL"): "transaction_isolation",
    ("NAMES",): "client_encoding",
}


def is_true_by_default(name: str) -> bool:
    """Whether a setting that is true or false is true before it is set."""
    return SETTINGS[name].default == "true"


def agg_phases(is_set: Callable[[str], bool]) -> AggPhases:
    """The phases of the aggregations of jobs that are created while these settings are true."""
    return phases_of(is_enabled=is_set(TWO_PHASE_AGG), is_forced=is_set(FORCED_TWO_PHASE_AGG))


class Settings:
    """The values of one session. Thread safe: each is replaced as a whole."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        """The value of a setting."""
        return self._values.get(name, SETTINGS[name].default)

    def set(self, name: str | None, value: str | None) -> None:
        """`name` None: all; `value` None: the default."""
        if name is None:
            self._values.clear()
        elif value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value

    @property
    def changed(self) -> frozenset[tuple[str, str]]:
        """Names and values of those that were set."""
        return frozenset(self._values.items())

    @property
    def flushes(self) -> bool:
        """Whether data changes are committed when they return."""
        return self.is_set(IMPLICIT_FLUSH)

    def is_set(self, name: str) -> bool:
        """Whether a setting that is true or false is true."""
        return self[name] == "true"

    @property
    def query_epoch(self) -> int | None:
        """At which queries read; None: the newest one."""
        return int(self[QUERY_EPOCH]) or None

    @property
    def parallelism(self) -> int | None:
        """Of jobs that are created from now on; None: that of the session's options."""
        return None if self[PARALLELISM] == DEFAULT else int(self[PARALLELISM])


def bind_set(reader: TokenReader) -> SetOption:
    """[SESSION] name {= | TO} {value, … | DEFAULT}, or TIME ZONE value, NAMES value."""
    if reader.begins("LOCAL"):
        raise reader.fail("SET LOCAL is not supported: a setting is the session's")
    reader.accept("SESSION")
    span = reader.span
    is_bare = reader.begins("TIME", "ZONE") or reader.begins("NAMES")
    name = _name(reader)
    setting = SETTINGS[name]
    if not (reader.accept("=") or reader.accept("TO") or is_bare or name == PARALLELISM):
        raise reader.fail("= or TO is expected here")
    value_span = reader.span
    if reader.accept("DEFAULT"):
        reader.finish()
        return SetOption(name, None)
    value = _value(reader)
    if setting.is_fixed:
        raise BindError(f"{name} is {setting.default!r}, and cannot be set", **error_span(span))
    try:
        return SetOption(name, setting.read(value))
    except ValueError as refusal:
        raise BindError(f"{name} is {refusal}", **error_span(value_span)) from refusal


def bind_reset(reader: TokenReader) -> SetOption:
    """{name | ALL}"""
    name = None if reader.accept("ALL") else _name(reader)
    reader.finish()
    return SetOption(name, None)


def bind_show(reader: TokenReader, others: Iterable[str]) -> ShowOptions:
    """{name | ALL}. `others`: what else follows SHOW, for the error of a wrong name."""
    name = None if reader.accept("ALL") else _name(reader, others)
    reader.finish()
    return ShowOptions(name)


def _name(reader: TokenReader, others: Iterable[str] = ()) -> str:
    """The name of a setting, one of SETTINGS. BindError with the closest one of these and of `others`."""
    span = reader.span
    for words, name in _PHRASES.items():
        if reader.accept(*words):
            return name
    written = reader.name("a setting").lower()
    name = _SYNONYMS.get(written, written)
    if name not in SETTINGS:
        raise BindError(unknown("setting", written, (*SETTINGS, *others)), **error_span(span))
    return name


def _value(reader: TokenReader) -> str:
    """Texts, words or numbers, separated by commas, to the end of the statement."""
    parts = []
    while True:
        sign = "-" if reader.accept("-") else ""
        parts.append(sign + reader.next().text)
        if not reader.accept(","):
            break
    reader.finish()
    return ", ".join(parts)
