"""Parses the URL of a store: `scheme://host/prefix?option=value`, without secrets.

URLs appear in messages, meta rows and task specs, so one that contains a user or a password is rejected: credentials
come from where each service's own tools look for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from hummock.errors import InvalidOption

BEGINS_AS_URL = re.compile(r"[A-Za-z][\w+.-]*:")
HIDDEN = "a URL with credentials"


@dataclass(frozen=True, slots=True)
class Address:
    """`prefix` is "" or ends with a slash; `url` is the URL as given."""

    url: str
    scheme: str
    host: str                       # bucket, container, or host and port
    prefix: str
    options: dict[str, str]

    def check_options(self, known: tuple[str, ...], required: tuple[str, ...] = ()) -> None:
        """Raises `InvalidOption` for an option that is not `known`, or a `required` one that is missing."""
        for name in self.options:
            if name not in known:
                raise InvalidOption(f"{self.scheme}://...?{name}", self.options[name], f"absent; known are {known}")
        for name in required:
            if not self.options.get(name):
                raise InvalidOption(f"{self.scheme}://...?{name}", "", "given")

    def flag(self, name: str, default: bool) -> bool:
        """The value of an option that is `true` or `false`."""
        value = self.options.get(name, "true" if default else "false")
        if value not in ("true", "false"):
            raise InvalidOption(name, value, "true or false")
        return value == "true"


def store_url(location: str | PathLike[str]) -> str:
    """The URL of a store that is named by a URL or by a path, `~` and relative ones included. What begins as a URL
    does, or is only the scheme of one, is left to whoever opens it.

    Raises `InvalidOption` for a path that no file system can hold.
    """
    text = fspath(location)
    if not text or "://" in text or BEGINS_AS_URL.match(text) or text in ("memory", "file"):
        return text
    try:
        return Path(text).expanduser().absolute().as_uri()
    except UnicodeEncodeError as error:
        raise InvalidOption("path", ascii(text), "text that UTF-8 can encode") from error


def parse_address(url: str) -> Address:
    """Raises `InvalidOption` if `url` is no URL of a store, contains credentials, `.` or `..`, or repeats an option."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InvalidOption("url", url, f"a URL: {error}") from error
    if "@" in parts.netloc:
        raise InvalidOption("url", HIDDEN, "without user and password: they come from the environment")
    if not parts.scheme or not parts.netloc or parts.fragment:
        raise InvalidOption("url", url, "scheme://host/prefix?option=value")
    names = [name for name in unquote(parts.path).split("/") if name]
    if any(name in (".", "..") for name in names) or len(dict(pairs)) != len(pairs):
        raise InvalidOption("url", url, "without '.' and '..' in its path, each option once")
    return Address(url, parts.scheme, unquote(parts.netloc), "".join(f"{name}/" for name in names), dict(pairs))
