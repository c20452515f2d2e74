"""Messages of a forked child through its pipe, a JSON object per line: notes accumulate, other fields are replaced."""

from __future__ import annotations

import json
import os
from typing import Any


def send(out: int, **message: object) -> None:
    os.write(out, json.dumps(message).encode() + b"\n")


def received(output: bytes, **end: Any) -> dict[str, Any]:
    """How the child ended: the defaults in `end`, updated by the messages in `output`."""
    end = {"notes": [], "error": "", **end}
    for line in output.splitlines():
        message = json.loads(line)
        if "note" in message:
            end["notes"].append(message["note"])
        else:
            end |= message
    return end
