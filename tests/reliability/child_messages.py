"""What a forked child tells through its pipe: a JSON object a line. Notes add up; of anything else the last stays."""

from __future__ import annotations

import json
import os
from typing import Any


def tell(out: int, **said: object) -> None:
    os.write(out, json.dumps(said).encode() + b"\n")


def heard(told: bytes, **end: Any) -> dict[str, Any]:
    """The child's end: `end`, which is what holds of a child that told nothing, and what was told."""
    end = {"notes": [], "error": "", **end}
    for line in told.splitlines():
        said = json.loads(line)
        if "note" in said:
            end["notes"].append(said["note"])
        else:
            end |= said
    return end
