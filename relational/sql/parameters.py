"""The parameters of one statement: how they are written in its text, and as what they are bound.

`?` is one after the other, `$1` by number, `:name` by name; one statement has one form. A parameter is bound by its
type, so that one plan serves all values of it, except where the grammar or the statement needs a constant: LIMIT,
OFFSET and FOR SYSTEM_TIME AS OF, and NULL, which has any type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from relational.errors import BindError
from relational.expr.bind import error_span
from relational.expr.expression import Literal
from relational.expr.parameters import parameter
from relational.expr.unbound import TextSpan, UnboundCast, UnboundExpr, UnboundLiteral, UnboundParameter
from relational.sql.tree import Tree
from relational.types.data_type import DataType, TypeKind

Given = Sequence[object] | Mapping[str, object]
"""Values of parameters: in order, or by name."""
MAX_PARAMETERS = 32_767
_COUNTS = (exp.Limit, exp.Offset, exp.Fetch, exp.Version)


def check_given(given: object) -> None:
    """BindError for what is neither values in order nor values by name; a text would be one for each character."""
    if isinstance(given, str | bytes) or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        kind = type(given).__name__
        raise BindError(f"the values of parameters are a list, a tuple or a dict, not one {kind}: write [value]")


class Parameters:
    """`given`: the values. `is_by_value`: each is bound as a constant; else those of LIMIT and OFFSET only, whose
    numbers are then in `constants`. After a statement is bound, `names` has the key of each parameter in `given`, and
    `spans` its first position in the text."""

    def __init__(self, given: Given = (), *, is_by_value: bool = False) -> None:
        self._given, self.is_by_value = given, is_by_value
        self._numbers: dict[int, int] = {}  # of each mark in the trees, by its id
        self._trees: list[Tree] = []
        self._keys: dict[str | int, int] = {}
        self._form = ""  # the first character of the first mark
        self._values: list[Literal] = []
        self.names: tuple[str | int, ...] = ()
        self.spans: list[TextSpan | None] = []
        self.constants: set[int] = set()
        self.reads_time = False

    def term(self, node: exp.Placeholder, tree: Tree) -> UnboundExpr:
        """What a mark is bound as. BindError if no value is given for it."""
        self._read(tree)
        number = self._numbers[id(node)]
        value, span = self._values[number], tree.location(node)
        is_count = isinstance(node.parent, _COUNTS)
        if self.is_by_value or is_count:
            self.constants.add(number)
        elif value.value is not None:
            return UnboundParameter(number + 1, value.data_type, span)
        constant = UnboundLiteral(value.value, value.data_type if value.data_type.is_nested else None, span)
        is_open = value.data_type.kind is TypeKind.VARCHAR  # like a text, or NULL, as written
        return constant if is_count or is_open else UnboundCast(constant, value.data_type, span)  # no position

    def now(self) -> UnboundExpr | None:
        """The time of the statement as a parameter; None if it is a constant as all others."""
        self.reads_time = True
        return None if self.is_by_value else UnboundParameter(0, DataType.TIMESTAMPTZ)

    def _read(self, tree: Tree) -> None:
        """Numbers the marks of a tree after those of the trees before it. BindError for two forms in one statement, and
        for missing values."""
        if any(each is tree for each in self._trees):
            return
        self._trees.append(tree)
        marks = [node for node in tree.node.walk() if isinstance(node, exp.Placeholder)]
        spans = {id(node): tree.location(node) or (0, 0) for node in marks}
        marks.sort(key=lambda node: spans[id(node)])
        keys = self._keys
        for mark in marks:
            span = spans[id(mark)]
            self._form = self._form or mark.this[0]
            if mark.this[0] != self._form:
                raise BindError("a statement writes all parameters as ?, as $1 or as :name", **error_span(span))
            key = self._key_of(mark.this, len(keys), span)
            self._numbers[id(mark)] = keys.setdefault(key, len(keys))
            if len(self.spans) < len(keys):
                self.spans.append(span)
                self._values.append(_literal(self._given[key], mark.this, span))  # type: ignore[index,call-overload]
        self.names = tuple(keys)

    def _key_of(self, text: str, before: int, span: TextSpan) -> str | int:
        """The key of a mark in the given values."""
        form = text[0]
        is_named = form == ":"
        if is_named != isinstance(self._given, Mapping) and (is_named or self._given):
            wanted = "a mapping of names to values" if is_named else "a sequence of values"
            raise BindError(f"{text} takes its value from {wanted}", **error_span(span))
        key: str | int = text[1:] if is_named else before if form == "?" else int(text[1:]) - 1
        if isinstance(key, int) and not 0 <= key < MAX_PARAMETERS:
            raise BindError(f"there is no parameter {text}: numbers are 1 to {MAX_PARAMETERS}", **error_span(span))
        count = len(self._given)
        if key not in (self._given if isinstance(self._given, Mapping) else range(count)):
            raise BindError(f"no value is given for {text}, {count} {'is' if count == 1 else 'are'} given",
                            **error_span(span))
        return key

    def finish(self) -> None:
        """BindError for values that are given for no parameter of a statement that was bound."""
        if isinstance(self._given, Mapping):
            unused = next((name for name in self._given if name not in self.names), None)
            if unused is not None:
                raise BindError(f"the statement has no parameter :{unused}")
            return
        wanted = max((key + 1 for key in self.names if isinstance(key, int)), default=0)
        if len(self._given) > wanted:
            values = "1 value is" if len(self._given) == 1 else f"{len(self._given)} values are"
            parameters = "1 parameter" if wanted == 1 else f"{wanted} parameters"
            raise BindError(f"{values} given, the statement has {parameters}")


def literals_of(given: Given, names: Sequence[str | int]) -> list[Literal]:
    """The values with these keys as literals. BindError for one that is no SQL value; KeyError or IndexError for a
    missing one."""
    return [parameter(given[name]) for name in names]  # type: ignore[index,call-overload]


def _literal(value: object, text: str, span: TextSpan) -> Literal:
    try:
        return parameter(value)
    except BindError as error:
        raise BindError(f"{text}: {error.message}", **error_span(span)) from error
