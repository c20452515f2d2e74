"""Signatures of functions as text: `"varchar, int? -> varchar"`, `"T[], T -> T[]"`, `"varchar, any... -> varchar"`.

An argument is a type, which accepts what widens to it, or one of these words:

    T, T[]   the common type of all T of the call, and a list of it
    any      any type, unchanged
    number, exact, row, list: any type of that family, unchanged
    text, texts: any type as text, any list as a list of texts

`?` marks arguments that may be omitted from the end; `...` a last one that may occur any number of times. A result is a
type, T, T[], or `first`: the type of the first argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relational.expr.coercion import can_widen, common_type, is_exact
from relational.expr.eval_context import EvalContext, Value
from relational.types.data_type import DataType, TypeKind

Types = tuple[DataType, ...]
Kernel = Callable[[EvalContext, list[Value], DataType], Value]
Resolve = Callable[[Types], tuple[Types, DataType] | None]

_FAMILIES: dict[str, Callable[[DataType], bool]] = {
    "any": lambda data_type: True,
    "number": lambda data_type: data_type.is_numeric,
    "exact": is_exact,
    "row": lambda data_type: data_type.kind is TypeKind.STRUCT,
    "list": lambda data_type: data_type.kind is TypeKind.LIST,
}
_TEXTS = ("text", "texts")
_VARIABLES = ("T", "T[]")
_BETWEEN = re.compile(r",\s*(?![^()]*\))")  # a comma outside of parentheses
MAX_ARGUMENTS = 1_000


@dataclass(frozen=True, slots=True)
class Overload:
    """`resolve`: argument types → (converted argument types, result type), None if the overload does not apply.

    `constants`: the positions of arguments that must be constants. `signature`: None if `resolve` is a rule of its own.
    """

    resolve: Resolve
    kernel: Kernel | None
    constants: tuple[int, ...] = ()
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The parsed text of a signature."""

    takes: tuple[DataType | str, ...]
    least: int
    is_variadic: bool
    gives: DataType | str

    @classmethod
    def parse(cls, text: str) -> Signature:
        arguments, _, result = text.partition("->")
        words = _BETWEEN.split(arguments.strip()) if arguments.strip() else []
        is_variadic = bool(words) and words[-1].endswith("...")
        least = sum(not word.endswith(("?", "...")) for word in words)
        return cls(tuple(_word(word.rstrip("?.")) for word in words), least, is_variadic, _word(result.strip()))

    def resolve(self, types: Types) -> tuple[Types, DataType] | None:
        """(converted argument types, result type) of a call, None if it does not fit."""
        return self.adapt(types, [False] * len(types))

    def adapt(self, types: Types, unknown: Sequence[bool]) -> tuple[Types, DataType] | None:
        """As `resolve`, where an `unknown` argument, a text or NULL literal, is of any type."""
        wanted = self._wanted(len(types))
        if wanted is None:
            return None
        variable = _variable(wanted, types, unknown)
        if variable is None and any(each in _VARIABLES for each in wanted):
            return None
        takes = []
        for want, data_type, is_open in zip(wanted, types, unknown, strict=True):
            given = _converted(want, data_type, is_open, variable)
            if given is None:
                return None
            takes.append(given)
        if self.gives == "first":
            return tuple(takes), takes[0]
        gives = _substituted(self.gives, variable)
        return None if gives is None else (tuple(takes), gives)

    def __str__(self) -> str:
        words = [str(each) for each in self.takes]
        words[self.least :] = [f"[{word}]" for word in words[self.least :]]
        return f"({', '.join(words)}{' …' if self.is_variadic else ''})"

    def takes_count(self, count: int) -> bool:
        """Whether it accepts so many arguments."""
        return self._wanted(count) is not None

    def _wanted(self, count: int) -> tuple[DataType | str, ...] | None:
        most = MAX_ARGUMENTS if self.is_variadic else len(self.takes)
        if not self.least <= count <= most:
            return None
        return (self.takes + self.takes[-1:] * (count - len(self.takes)))[:count]


def _word(text: str) -> DataType | str:
    return text if text in (*_VARIABLES, *_FAMILIES, *_TEXTS, "first") else DataType.parse(text)


def _variable(wanted: Sequence[DataType | str], types: Types, unknown: Sequence[bool]) -> DataType | None:
    """T of a call; None if its arguments have no type in common."""
    found = []
    for want, data_type, is_open in zip(wanted, types, unknown, strict=True):
        if want == "T" and not is_open:
            found.append(data_type)
        elif want == "T[]" and not is_open:
            if data_type.element is None:
                return None
            found.append(data_type.element)
    if not found:
        return DataType.VARCHAR
    return common_type(found)


def _converted(
    want: DataType | str, data_type: DataType, is_open: bool, variable: DataType | None
) -> DataType | None:
    """The type that an argument is converted to; None if it cannot be."""
    if want in _FAMILIES:
        return data_type if _FAMILIES[str(want)](data_type) else None
    if want in _TEXTS:
        return _as_text(data_type, is_open, want == "texts")
    target = _substituted(want, variable)
    if target is None or is_open:
        return target
    return target if can_widen(data_type, target) else None


def _as_text(data_type: DataType, is_open: bool, is_list: bool) -> DataType | None:
    if not is_list:
        return DataType.VARCHAR
    return DataType.list_of(DataType.VARCHAR) if is_open or data_type.element is not None else None


def _substituted(word: DataType | str, variable: DataType | None) -> DataType | None:
    if isinstance(word, DataType):
        return word
    if variable is None:
        return None
    return variable if word == "T" else DataType.list_of(variable)


def row(text: str, kernel: Kernel | None, constants: tuple[int, ...] = ()) -> Overload:
    """The overload with the signature `text`."""
    signature = Signature.parse(text)
    return Overload(signature.resolve, kernel, constants, signature)


def fixed(takes: Types, gives: DataType, kernel: Kernel | None, constants: tuple[int, ...] = ()) -> Overload:
    """The overload that takes exactly these types, to which arguments widen."""
    signature = Signature(takes, len(takes), False, gives)
    return Overload(signature.resolve, kernel, constants, signature)


def merged(*families: dict[str, tuple[Overload, ...]]) -> dict[str, tuple[Overload, ...]]:
    """One registry of families; a name in several has the overloads of all, in order."""
    found: dict[str, tuple[Overload, ...]] = {}
    for family in families:
        for name, overloads in family.items():
            found[name] = found.get(name, ()) + overloads
    return found
