"""Plans as indented text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PlanNode(Protocol):
    """A node of a plan of any kind. `share_number` is not None for the input of several readers: in one plan, nodes of
    the same number are the same object."""

    @property
    def summary(self) -> str: ...

    @property
    def inputs(self) -> Sequence[PlanNode]: ...

    @property
    def share_number(self) -> int | None: ...


def tree_text(root: PlanNode) -> str:
    """One line per node, the root first, inputs indented; what is below a shared node at its first reader only."""
    lines: list[str] = []
    printed: set[int] = set()
    todo = [(root, "")]
    while todo:
        node, indent = todo.pop()
        number = node.share_number
        if number in printed:
            lines.append(f"{indent}{node.summary} (above)")
            continue
        if number is not None:
            printed.add(number)
        lines.append(indent + node.summary)
        todo += ((child, indent + "  ") for child in reversed(node.inputs))
    return "\n".join(lines)
