"""The nodes of sqlglot's tree that a statement may have: the arguments that we use, and the words of the text that each
accounts for.

Anything not in this table is rejected: a node, an argument that is set, a word that no node accounts for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from relational.sql.grammar import Operation, Plus

Key = str | TokenType
"""A word in upper case, or the kind of a symbol."""
Words = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """`args`: the arguments that are used; `settled`: those that the dialect sets regardless of the text; `words`: the
    words of the text that it accounts for, in addition to its children.
    """

    args: frozenset[str]
    words: Words | Callable[[Any], Iterable[Key]] = ()
    settled: frozenset[str] = frozenset()

    def words_of(self, node: exp.Expr) -> Iterable[Key]:
        """The words that this node accounts for."""
        return self.words(node) if callable(self.words) else self.words


def _known(args: str, words: Words | Callable[[Any], Iterable[Key]] = (), settled: str = "") -> Known:
    return Known(frozenset(args.split()), words, frozenset(settled.split()))


def _pair(*words: Key, settled: str = "") -> Known:
    return _known("this expression", words, settled)


def _case(node: exp.Case) -> Iterable[Key]:
    return ("CASE", "END") if node.args.get("default") is None else ("CASE", "ELSE", "END")


def _like(word: str) -> Callable[[exp.Expr], Words]:
    return lambda node: ("NOT", word) if node.args.get("negate") else (word,)


def _window(node: exp.Window) -> Words:
    """Of a call, or of a definition in a WINDOW clause, which begins with its name."""
    over = () if isinstance(node.this, exp.Identifier) else ("OVER",)
    return (*over, "PARTITION BY") if node.args.get("partition_by") else over


def _frame(node: exp.WindowSpec) -> Words:
    """What sqlglot keeps as texts; offsets are nodes."""
    words = [node.args["kind"], *(("BETWEEN", "AND") if node.args.get("end") else ())]
    for side in ("start", "end"):
        bound = node.args.get(side)
        words += bound.split() if isinstance(bound, str) else ()
        words += [node.args[f"{side}_side"]] if node.args.get(f"{side}_side") else ()
    return tuple(word.upper() for word in words)


def _select(node: exp.Select) -> Words:
    return ("SELECT", "WINDOW") if node.args.get("windows") else ("SELECT",)


def _between(node: exp.Between) -> Words:
    return ("BETWEEN", "SYMMETRIC", "AND") if node.args.get("symmetric") else ("BETWEEN", "AND")


def _word(node: exp.Expr) -> Words:
    word = str(node.this).upper()
    return () if "start" in node.meta or word in SILENT else (word,)


def _ordinality(node: exp.Expr) -> Words:
    return ("WITH", "ORDINALITY") if node.args.get("ordinality") else ()


_SET_OPERATION = "this expression distinct order limit offset with_ by_name kind on"


def _corresponding(node: exp.SetOperation) -> Words:
    """UNION CORRESPONDING [BY (…)] and the like; the words of other forms by name are left over."""
    if not node.args.get("by_name"):
        return ()
    return ("CORRESPONDING", "BY") if node.args.get("on") else ("CORRESPONDING",)


def is_comma(node: exp.Join) -> bool:
    """Whether a relation follows another one after a comma, without JOIN."""
    return bool(node.meta.get("is_comma"))


def _join(node: exp.Join) -> Words:
    if is_comma(node):
        return ()
    condition = "ON" if node.args.get("on") is not None else "USING" if node.args.get("using") else ""
    words = [node.method, node.side, node.kind, "JOIN", condition]
    return tuple(word.upper() for word in words if word)


def _materialized(node: exp.CTE) -> Words:
    """[NOT] MATERIALIZED, which is refused where the query is bound."""
    is_materialized = node.args.get("materialized")
    return () if is_materialized is None else ("MATERIALIZED",) if is_materialized else ("NOT", "MATERIALIZED")


KNOWN: dict[type[exp.Expr], Known] = {
    exp.Add: _pair(TokenType.PLUS),
    exp.Sub: _pair(TokenType.DASH),
    exp.Mul: _pair(TokenType.STAR),
    exp.Div: _pair(TokenType.SLASH, settled="typed safe"),
    exp.Mod: _pair(TokenType.MOD),
    exp.EQ: _pair(TokenType.EQ),
    exp.NEQ: _pair(TokenType.NEQ),
    exp.LT: _pair(TokenType.LT),
    exp.LTE: _pair(TokenType.LTE),
    exp.GT: _pair(TokenType.GT),
    exp.GTE: _pair(TokenType.GTE),
    exp.And: _pair("AND"),
    exp.Or: _pair("OR"),
    exp.DPipe: _pair(TokenType.DPIPE, settled="safe"),
    exp.NullSafeEQ: _pair("IS", "NOT", "DISTINCT", "FROM"),
    exp.NullSafeNEQ: _pair("IS", "DISTINCT", "FROM"),
    exp.Is: _pair("IS"),
    exp.Like: _known("this expression negate", _like("LIKE")),
    exp.ILike: _known("this expression negate", _like("ILIKE")),
    exp.Between: _known("this low high symmetric", _between),
    exp.In: _known("this expressions query", ("IN",)),
    exp.Exists: _known("this", ("EXISTS",)),
    exp.Not: _known("this", ("NOT",)),
    exp.Neg: _known("this", (TokenType.DASH,)),
    Plus: _known("this", (TokenType.PLUS,)),
    Operation: _known("this expressions"),
    exp.Any: _known("this", ("ANY",)),
    exp.All: _known("this"),
    exp.AtTimeZone: _known("this zone", ("AT", "TIME", "ZONE")),
    exp.Bracket: _known("this expressions", (TokenType.L_BRACKET, TokenType.R_BRACKET)),
    exp.Slice: _known("this expression", (TokenType.COLON,)),
    exp.Kwarg: _pair(TokenType.FARROW),
    exp.SimilarTo: _pair("SIMILAR TO"),
    exp.Collate: _pair("COLLATE"),
    exp.Escape: _pair("ESCAPE"),
    exp.Paren: _known("this"),
    exp.Tuple: _known("expressions"),
    exp.Array: _known("expressions", ("ARRAY", TokenType.L_BRACKET, TokenType.R_BRACKET)),
    exp.Anonymous: _known("this expressions", lambda node: () if "start" in node.meta else (node.name.upper(),)),
    exp.Cast: _known("this to", ("CAST",)),
    exp.Case: _known("this ifs default", _case),
    exp.If: _known("this true", ("WHEN", "THEN")),
    exp.Interval: _known("this unit", ("INTERVAL",)),
    exp.Filter: _known("this expression", ("FILTER",)),
    exp.WithinGroup: _known("this expression", ("WITHIN", "GROUP")),
    exp.Window: _known("this partition_by order spec alias", _window, settled="over"),
    exp.WindowSpec: _known("kind start start_side end end_side", _frame),
    exp.Distinct: _known("expressions on", lambda node: ("DISTINCT", "ON") if node.args.get("on") else ("DISTINCT",)),
    exp.CurrentDate: _known("", ("CURRENT_DATE",)),
    exp.CurrentTime: _known("", ("CURRENT_TIME",)),
    exp.CurrentTimestamp: _known("", ("CURRENT_TIMESTAMP",)),
    exp.Localtimestamp: _known("", ("LOCALTIMESTAMP",)),
    exp.Placeholder: _known("this"),
    exp.Null: _known("", ("NULL",)),
    exp.Boolean: _known("this", lambda node: ("TRUE" if node.this else "FALSE",)),
    exp.Literal: _known("this is_string"),
    exp.ByteString: _known("this"),
    exp.RawString: _known("this"),
    exp.Concat: _known("expressions"),
    exp.Column: _known("this table db catalog"),
    exp.Dot: _known("this expression"),
    exp.Identifier: _known("this quoted"),
    exp.Star: _known("except_", lambda node: ("EXCEPT",) if node.args.get("except_") else ()),
    exp.Var: _known("this", _word),
    exp.Alias: _known("this alias"),
    exp.TableAlias: _known("this columns"),
    exp.Table: _known("this db catalog alias joins version ordinality", _ordinality),
    exp.Version: _known("this expression kind", ("FOR", "SYSTEM_TIME", "OF")),
    exp.Lateral: _known("this alias ordinality", lambda node: ("LATERAL", *_ordinality(node))),
    exp.ColumnDef: _known("this kind"),
    exp.Subquery: _known("this alias order limit offset with_"),
    exp.Select: _known(
        "expressions from_ joins where group having windows distinct order limit offset with_", _select
    ),
    exp.Union: _known(_SET_OPERATION, _corresponding),
    exp.Except: _known(_SET_OPERATION, _corresponding),
    exp.Intersect: _known(_SET_OPERATION, _corresponding),
    exp.With: _known(
        "expressions recursive", lambda node: ("WITH", "RECURSIVE") if node.args.get("recursive") else ("WITH",)
    ),
    exp.CTE: _known("this alias materialized", _materialized),
    exp.From: _known("this", ("FROM",)),
    exp.Join: _known("this on side kind using method", _join),
    exp.Where: _known("this", ("WHERE",)),
    exp.Group: _known("expressions", ("GROUP BY",)),
    exp.Rollup: _known("expressions", ("ROLLUP",)),
    exp.Cube: _known("expressions", ("CUBE",)),
    exp.GroupingSets: _known("expressions", ("GROUPING SETS",)),
    exp.Having: _known("this", ("HAVING",)),
    exp.Order: _known("this expressions", ("ORDER BY",)),
    exp.Ordered: _known("this desc nulls_first"),
    exp.Limit: _known("expression", ("LIMIT",)),
    exp.LimitOptions: _known("rows"),
    exp.Offset: _known("expression", ("OFFSET",)),
    exp.Fetch: _known("count direction limit_options"),
    exp.Values: _known("expressions alias", ("VALUES",)),
    exp.Update: _known("this expressions where", ("UPDATE", "SET")),
    exp.Delete: _known("this where", ("DELETE", "FROM")),
}
"""exp.DataType is a leaf: `relational.types` reads its text."""

SYNONYMS: dict[Key, Words] = {
    TokenType.DCOLON: ("CAST",),
    TokenType.LIKE: ("LIKE",),
    TokenType.ILIKE: ("ILIKE",),
    "ISNULL": ("IS", "NULL"),
    "NOTNULL": ("IS", "NOT", "NULL"),
    "UNKNOWN": ("NULL",),
    "SOME": ("ANY",),
}
"""Synonyms in the text; `!=` and `<>`, `==` and `=` are one kind of symbol each."""

SILENT = frozenset(
    (
        "AS",
        "ALL",
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.COMMA,
        TokenType.DOT,
    )
)
"""Words without effect, or represented by the tree's structure: which names belong together, what is inside."""

CHAINS = (exp.And, exp.Or, exp.DPipe, exp.Union)
"""Operators of which any number may be chained: they form a list, regardless of parentheses."""

UNWEIGHTED = (
    exp.Paren,
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Alias,
    exp.If,
    exp.Ordered,
    exp.Order,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Group,
    exp.Rollup,
    exp.Cube,
    exp.Having,
    exp.Tuple,
)
"""Nodes that do not add depth to a tree."""

NAMES: dict[type[exp.Expr], str] = {
    exp.Window: "a window function (OVER)",
    exp.WindowSpec: "a frame",
    exp.Select: "a subquery",
    exp.Exists: "EXISTS",
    exp.Any: "ANY",
    exp.All: "ALL",
    exp.Bracket: "this subscript",
    exp.Slice: "this slice",
    exp.Parameter: "a parameter",
    exp.Placeholder: "a parameter",
    exp.Union: "UNION",
    exp.Except: "EXCEPT",
    exp.Intersect: "INTERSECT",
    exp.With: "WITH",
    exp.CTE: "a query of WITH",
    exp.Join: "JOIN",
    exp.Lateral: "LATERAL",
    exp.ColumnDef: "a type here",
    exp.Rollup: "ROLLUP",
    exp.Cube: "CUBE",
    exp.GroupingSets: "GROUPING SETS",
    exp.In: "IN",
    exp.WithinGroup: "WITHIN GROUP",
    exp.IgnoreNulls: "IGNORE NULLS",
    exp.RespectNulls: "RESPECT NULLS",
    exp.Star: "*",
    exp.Update: "UPDATE",
    exp.Delete: "DELETE",
    exp.Tuple: "a row of values",
    exp.TableAlias: "a relation's alias",
    exp.Subquery: "a subquery",
    exp.Group: "GROUP BY",
    exp.Distinct: "DISTINCT",
    exp.Order: "ORDER BY",
    exp.Ordered: "ORDER BY",
    exp.Limit: "LIMIT",
    exp.Offset: "OFFSET",
    exp.Fetch: "FETCH",
    exp.LimitOptions: "FETCH FIRST",
    exp.Values: "VALUES",
    exp.Table: "a table",
    exp.Concat: "a text in pieces",
    exp.Lambda: "a lambda",
}
"""Names of nodes in messages."""

CLAUSES = {
    "joins": "JOIN",
    "with_": "WITH",
    "exclude": "EXCLUDE",
    "laterals": "LATERAL",
    "locks": "FOR UPDATE",
    "version": "FOR SYSTEM_TIME AS OF",
    "columns": "a list of columns",
    "query": "a subquery",
    "limit_options": "WITH TIES or PERCENT",
    "percent": "PERCENT",
    "with_ties": "WITH TIES",
    "method": "this kind",
    "this": "what is before it",
}
"""Names of arguments in messages, if not their own."""
