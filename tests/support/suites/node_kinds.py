"""The kinds of nodes of a plan, so that tests find one that a rule, a planner or a format does not know."""

from __future__ import annotations

import sys


def kinds(base: type) -> set[type]:
    """The classes below `base` that have no subclasses. A dataclass with slots exists twice; one is no attribute of its
    module.
    """
    below = [each for each in base.__subclasses__() if getattr(sys.modules[each.__module__], each.__name__, 0) is each]
    return set().union(*map(kinds, below)) if below else {base}
