"""Log records: one line each, an event and its fields, for the loggers of the modules.

    log = logging.getLogger(__name__)
    log.info(Event("commit slow", epoch=7, seconds=6.25))       commit slow epoch=7 seconds=6.250

A record is made of what happens to a store, a job or a process; none of a row or a chunk. The library installs no
handler: an application decides where records go. A command installs one, as `install_handler` describes.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any

from hummock.errors import InvalidOption

PACKAGES = ("hummock", "relational", "stream")
LEVELS = ("debug", "info", "warning", "error")
DEFAULT_LEVEL = "warning"
LONGEST_TEXT = 500          # characters of a field


class Event:
    """A message that is formatted when a handler wants it; `fields` are there for handlers of their own."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: Any):
        self.name, self.fields = name, fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={shown(value)}" for key, value in self.fields.items()
                                      if value is not None)])


def shown(value: Any) -> str:
    """The value of a field: plain if it is one word, else in double quotes, with escapes of JSON."""
    if isinstance(value, float):
        return f"{value:.3f}"
    text = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value)
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}..."
    is_plain = text.isprintable() and text and not any(letter in ' "=' for letter in text)
    return text if is_plain else json.dumps(text, ensure_ascii=False)


class LineFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z WARNING stream.meta.job_failures job failed job=v reason="…"`: one line a record, a
    traceback as its last field."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        trace = f" trace={json.dumps(self.formatException(record.exc_info))}" if record.exc_info else ""
        return f"{moment}.{int(record.msecs):03d}Z {record.levelname} {record.name} {message}{trace}"


class _StderrHandler(logging.Handler):
    """Writes to what is the standard error stream at that moment; `levels` were set with it, by logger."""

    def __init__(self, levels: Mapping[str, int]):
        super().__init__()
        self.levels = levels
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def install_handler(levels: str = DEFAULT_LEVEL) -> None:
    """Writes records to the standard error stream, from a level on, and those of other packages from warning on.

    `levels`: a level, or several with loggers, as `info,hummock.object_store=debug`. It replaces what an earlier call
    has installed. Raises `InvalidOption`.
    """
    chosen, root = _parsed(levels), logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _StderrHandler)]:
        root.removeHandler(handler)
        for name in handler.levels:
            logging.getLogger(name).setLevel(logging.NOTSET)
    root.addHandler(_StderrHandler(chosen))
    for name, level in chosen.items():
        logging.getLogger(name).setLevel(level)


def _parsed(levels: str) -> dict[str, int]:
    """Levels by logger."""
    chosen = dict.fromkeys(PACKAGES, logging.WARNING)
    for part in levels.split(","):
        name, _, level = part.strip().rpartition("=")
        if level.lower() not in LEVELS:
            raise InvalidOption("log level", levels, f"{', '.join(LEVELS)}, or logger=level, with commas between")
        chosen.update(dict.fromkeys([name] if name else PACKAGES, logging.getLevelName(level.upper())))
    return chosen
