"""The options of a connector as values of their types; an invalid one is a ConnectorError that says what is valid."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from stream.errors import ConnectorError

SHOWN_OPTIONS = 12


class OptionValues:
    """The options given to `connector`, which has the options `known` and no others. ConnectorError for another one."""

    def __init__(self, connector: str, options: Mapping[str, str], known: Collection[str]) -> None:
        self._connector = connector
        self._options = options
        for name in sorted(options):
            if name not in known:
                shown = ", ".join(sorted(known)[:SHOWN_OPTIONS]) or "none"
                raise ConnectorError(connector, f"it has no option {name!r}; it has: {shown}")

    def text(self, name: str, default: str | None = None) -> str:
        """REQUIRES the option where there is no default."""
        value = self._options.get(name, default)
        if value is None:
            raise ConnectorError(self._connector, f"the option {name} is missing")
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """One of `choices`."""
        value = self._options.get(name, default)
        if value not in choices:
            raise self._refused(name, value, " or ".join(choices))
        return value

    def flag(self, name: str, default: bool) -> bool:
        """TRUE or FALSE, in any case."""
        value = self._options.get(name, str(default))
        if value.lower() not in ("true", "false"):
            raise self._refused(name, value, "true or false")
        return value.lower() == "true"

    def integer(self, name: str, default: int | None, least: int, most: int) -> int:
        """A whole number from `least` to `most`. REQUIRES the option where there is no default."""
        value = self.text(name, None if default is None else str(default))
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or not least <= int(value) <= most:
            raise self._refused(name, value, f"a whole number from {least} to {most}")
        return int(value)

    def character(self, name: str, default: str) -> str:
        """One ASCII character, or none."""
        value = self._options.get(name, default)
        if len(value) > 1 or not value.isascii() or value in ("\n", "\r", "\0"):
            raise self._refused(name, value, "one ASCII character, or empty")
        return value

    def _refused(self, name: str, value: str, wanted: str) -> ConnectorError:
        return ConnectorError(self._connector, f"the option {name} is {wanted}, not {value[:100]!r}")
