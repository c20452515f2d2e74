"""Plans as indented text, and the parts of a line that plans of all kinds write alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from relational.expr.aggregates import AggCall
from relational.expr.expression import Expression
from relational.expr.window_functions import WindowCall
from relational.types.ordering import SortKey


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


def select_items(expressions: Iterable[Expression], inputs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Expressions over columns called `inputs`, as output columns called `names`."""
    pairs = zip((each.describe(inputs) for each in expressions), names, strict=True)
    return [text if text == name else f"{text} AS {name}" for text, name in pairs]


def set_text(
    functions: Iterable[Expression], passed: Iterable[int], inputs: Sequence[str], names: Sequence[str], is_outer: bool
) -> str:
    """The rows of functions, called `names`, beside columns `passed` of an input with columns called `inputs`."""
    items, beside = ", ".join(select_items(functions, inputs, names)), ", ".join(inputs[column] for column in passed)
    return f"{'outer ' if is_outer else ''}{items} beside [{beside}]"


def order_text(keys: Sequence[SortKey], names: Sequence[str]) -> str:
    """Sort keys over columns called `names`."""
    return ", ".join(f"{names[key.column]} {key.order}" for key in keys)


def calls_text(calls: Sequence[WindowCall], names: Sequence[str], inputs: Sequence[str]) -> str:
    """Window functions over columns called `inputs`, as output columns called `names`."""
    pairs = zip((each.describe(inputs) for each in calls), names, strict=True)
    return ", ".join(text if text == name else f"{text} AS {name}" for text, name in pairs)


def groups_text(groups: Sequence[int], keys: Sequence[SortKey], names: Sequence[str]) -> str:
    """Groups whose rows have an order."""
    return f"of [{', '.join(names[column] for column in groups)}] by [{order_text(keys, names)}]"


def join_text(
    keys: Sequence[tuple[int, int]],
    null_safe: Sequence[bool],
    condition: Expression | None,
    inputs: tuple[Sequence[str], Sequence[str]],
    widths: tuple[int, int],
) -> str:
    """The keys of a join, and its condition over the first columns of both inputs, whose columns are called `inputs`.
    """
    left, right = inputs
    pairs = zip(keys, null_safe, strict=True)
    terms = [f"{left[a]} {'IS NOT DISTINCT FROM' if is_safe else '='} {right[b]}" for (a, b), is_safe in pairs]
    if condition is not None:
        terms.append(condition.describe((*left[: widths[0]], *right[: widths[1]])))
    return " AND ".join(terms)


def grouping_text(group_by: Iterable[int], calls: Iterable[AggCall], inputs: tuple[str, ...]) -> str:
    """The group columns and the aggregates over columns called `inputs`."""
    groups = ", ".join(inputs[index] for index in group_by)
    return f"[{groups}] {', '.join(call.describe(inputs) for call in calls)}".rstrip()
