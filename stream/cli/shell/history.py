"""The history of the shell: a file of the user that nobody else can read, without secrets."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

MOST_ENTRIES = 10_000
HIDDEN = "***"
URL_PASSWORD = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/@:'\"]*:)[^\s/@'\"]+(?=@)", re.IGNORECASE)
SECRET_OPTION = re.compile(
    r"(?P<before>[\w.]*(?:password|passwd|secret|token|credential|access_key)[\w.]*[\"']?\s*(?:=|\bTO\b)\s*)"
    r"(?:'(?:[^']|'')*'|[^\s,;)']+)",
    re.IGNORECASE,
)


def history_path(environment: Mapping[str, str] = os.environ) -> Path:
    """`hummock/history` in the user's directory for state."""
    state = environment.get("XDG_STATE_HOME", "")
    directory = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return directory / "hummock" / "history"


def without_secrets(text: str) -> str:
    """The text with the passwords of URLs, and the values of options that are named like secrets, left out."""
    text = URL_PASSWORD.sub(rf"\g<before>{HIDDEN}", text)
    return SECRET_OPTION.sub(rf"\g<before>'{HIDDEN}'", text)


class HistoryFile:
    """One input a line, as a JSON string, at most MOST_ENTRIES. If the file cannot be used there is no history."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or history_path()

    def entries(self) -> list[str]:
        """All inputs, the oldest first."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        found = [entry for entry in map(_entry, lines) if entry]
        if len(found) > MOST_ENTRIES:
            found = found[-MOST_ENTRIES:]
            self._write(found, os.O_TRUNC)
        return found

    def append(self, text: str) -> None:
        """Adds an input, unless it is blank."""
        if text.strip():
            self._write([without_secrets(text.strip())], os.O_APPEND)

    def _write(self, entries: list[str], mode: int) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)
                file.write("".join(json.dumps(entry) + "\n" for entry in entries))
        except OSError:
            return


def _entry(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""
