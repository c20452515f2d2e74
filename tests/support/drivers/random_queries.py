"""Random queries over the tables of TABLES: aliases, derived tables, WITH, UNION and its kin, joins, in the dialect
that DuckDB shares.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

TABLES = {
    "t": ("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR, n NUMERIC(10, 2))", "iitn", ("id", "a", "s", "n")),
    "u": ("CREATE TABLE u (k VARCHAR, b BIGINT, d DOUBLE PRECISION, PRIMARY KEY (k, b))", "tif", ("k", "b", "d")),
    "v": ("CREATE TABLE v (a INT, s VARCHAR)", "it", ("a", "s")),
}
"""By name its statement, the kind of each column (see `Column`), and their names."""
NUMBERS = "inf"
"""Kinds of numbers, each of which can hold those before it in a union."""


@dataclass(frozen=True)
class Column:
    """A column of a query: its name, and its kind: i integer, n NUMERIC, f DOUBLE, t text."""

    name: str
    kind: str


@dataclass
class Relation:
    """What stands in FROM: its text, its columns, and the name that may qualify them."""

    text: str
    columns: list[Column]
    name: str


@dataclass
class QueryMaker:
    """Queries from one seed. `is_view`: without ORDER BY, LIMIT and rows without a table. `has_sums`: with SUM, AVG,
    FILTER and several groups, whose types may not fit each other in a union. `has_joins`: of two relations, or three.
    `views`: by name, beside TABLES."""

    seed: object
    is_view: bool = False
    has_sums: bool = False
    has_joins: bool = False
    views: dict[str, list[Column]] = field(default_factory=dict)
    columns: list[Column] = field(default_factory=list)
    """Of the last query."""
    _names: int = 0
    _named: list[tuple[str, list[Column]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(str(self.seed))

    def query(self) -> str:
        """A query; with an ORDER BY its order is total."""
        self._named = []
        text = self._with() if self._random.random() < 0.5 else ""
        body, columns = self._union(2) if self._random.random() < 0.6 else self._select(3)
        self.columns = columns
        return text + body + (self._arranged(len(columns)) if not self.is_view else "")

    def _arranged(self, width: int) -> str:
        chance = self._random
        if chance.random() < 0.5:
            return ""
        order = ", ".join(
            f"{position}{chance.choice(('', ' DESC', ' NULLS FIRST', ' DESC NULLS LAST'))}"
            for position in chance.sample(range(1, width + 1), width)
        )
        limit = f" LIMIT {chance.randint(0, 12)}" if chance.random() < 0.5 else ""
        offset = f" OFFSET {chance.randint(0, 5)}" if limit and chance.random() < 0.5 else ""
        return f" ORDER BY {order}{limit}{offset}"

    def _with(self) -> str:
        parts = []
        for _ in range(self._random.randint(1, 3)):
            body, columns = self._union(1) if self._random.random() < 0.4 else self._select(2)
            name = self._random.choice(("t", "v", self._name())) if self._random.random() < 0.3 else self._name()
            if name in dict(self._named):
                continue
            listed = ""
            if self._random.random() < 0.4:
                columns = [Column(self._name(), column.kind) for column in columns]
                listed = f"({', '.join(column.name for column in columns)})"
            parts.append(f"{name}{listed} AS ({body})")
            self._named.append((name, columns))
        return f"WITH {', '.join(parts)} "

    def _union(self, depth: int) -> tuple[str, list[Column]]:
        chance = self._random
        kinds = [chance.choice("itnf") for _ in range(chance.randint(1, 3))]
        first, columns = self._select(depth, kinds)
        text = first
        for _ in range(chance.randint(1, 3)):
            words = self._set_operation()
            kind_of_branch = chance.random()
            if kind_of_branch < 0.15 and depth:
                branch = f"({self._fitting_union(depth - 1, kinds)})"
            elif kind_of_branch < 0.3 and not self.is_view:
                inner, _ = self._select(depth, kinds)
                branch = f"({inner}{self._arranged(len(kinds))})"
            elif kind_of_branch < 0.4 and not self.is_view:
                branch = f"VALUES ({', '.join(map(self._constant, kinds))}), ({', '.join(map(self._constant, kinds))})"
            else:
                branch, _ = self._select(depth, kinds)
            text += f" {words} {branch}"
        return text, columns

    def _set_operation(self) -> str:
        if self._random.random() < 0.3:
            return self._random.choice(("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        return self._random.choice(("UNION ALL", "UNION ALL", "UNION", "UNION DISTINCT"))

    def _fitting_union(self, depth: int, kinds: list[str]) -> str:
        words = self._set_operation()
        return f"{self._select(depth, kinds)[0]} {words} {self._select(depth, kinds)[0]}"

    def _select(self, depth: int, kinds: list[str] | None = None) -> tuple[str, list[Column]]:
        """A SELECT of columns of these kinds, or narrower numbers; of any without."""
        chance = self._random
        relation = self._relation(depth)
        where = f" WHERE {self._where(relation, depth)}" if chance.random() < 0.4 else ""
        if kinds is None and chance.random() < 0.25:
            grouped = self._summed if self.has_sums and chance.random() < 0.7 else self._grouped
            return grouped(relation, where)
        if kinds is None and chance.random() < 0.3 and len({each.name for each in relation.columns}) == len(
            relation.columns
        ):
            star = chance.choice(("*", f"{relation.name}.*" if relation.name else "*"))
            return f"SELECT {star} FROM {relation.text}{where}", relation.columns
        kinds = kinds or [chance.choice("itnf") for _ in range(chance.randint(1, 3))]
        items = [self._item(relation, kind) for kind in kinds]
        columns = [Column(self._name(), kind) for kind in kinds]
        selected = ", ".join(f"{item} AS {column.name}" for item, column in zip(items, columns, strict=True))
        distinct = "DISTINCT " if chance.random() < 0.2 else ""
        return f"SELECT {distinct}{selected} FROM {relation.text}{where}", columns

    def _grouped(self, relation: Relation, where: str) -> tuple[str, list[Column]]:
        group = self._random.choice(relation.columns)
        named = self._column(relation, group)
        value = self._random.choice(relation.columns)
        calls = ["count", "min", "max", *(["bit_and", "bit_or", "bit_xor"] if value.kind == "i" else []), "string_agg"]
        call = self._random.choice(calls)
        kind = "i" if call == "count" else "t" if call == "string_agg" else value.kind
        columns = [Column(self._name(), group.kind), Column(self._name(), kind)]
        argument = self._column(relation, value)
        if call == "string_agg":
            argument = f"CAST({argument} AS TEXT), '-' {self._order(relation)}"
            if value.kind in "nf":  # whose texts differ
                call, argument, kind = "count", self._column(relation, value), "i"
                columns[1] = Column(columns[1].name, kind)
        groups = self._random.choice(("{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({0}), ({0}))"))
        text = (
            f"SELECT {named} AS {columns[0].name}, {call}({argument}) AS {columns[1].name} "
            f"FROM {relation.text}{where} GROUP BY {groups.format(named)}"
        )
        return text, columns

    def _order(self, relation: Relation) -> str:
        """ORDER BY all columns, so that only equal rows are equal in it."""
        keys = self._random.sample(relation.columns, len(relation.columns))
        words = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        return "ORDER BY " + ", ".join(f"{self._column(relation, key)}{self._random.choice(words)}" for key in keys)

    def _collected(self, relation: Relation) -> tuple[str, str]:
        """An aggregate over rows in an order, of bits or of pairs, and its kind."""
        chance = self._random
        column = chance.choice(relation.columns)
        name, order = self._column(relation, column), self._order(relation)
        kept = f" FILTER (WHERE {self._condition(relation)})" if chance.random() < 0.3 else ""
        numbers = [each for each in relation.columns if each.kind != "t"]
        other = self._column(relation, chance.choice(numbers)) if numbers else "1"
        found = [
            (f"(array_agg({name} {order}){kept})[{chance.randint(1, 3)}]", column.kind),
            (f"array_to_string(array_agg(DISTINCT {name}){kept}, ',', '-')", "t"),
            (f"string_agg(CAST({name} AS TEXT), ', ' {order}){kept}", "t"),
            (f"CAST(jsonb_agg({name} {order}){kept} AS TEXT)", "t"),
            (f"{chance.choice(('first_value', 'last_value'))}({name} {order}){kept}", column.kind),
            (f"mode() WITHIN GROUP (ORDER BY {name}{chance.choice(('', ' DESC'))}){kept}", column.kind),
            (f"percentile_disc(0.{chance.randint(0, 9)}) WITHIN GROUP (ORDER BY {name}){kept}", column.kind),
        ]  # fmt: skip
        if column.kind == "i":
            found += [(f"{call}({name}){kept}", "i") for call in ("bit_and", "bit_or", "bit_xor")]
        if column.kind != "t":
            call = chance.choice(("corr", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"))
            found.append((f"CAST({call}({name}, {other}){kept} AS NUMERIC(30, 6))", "n"))
            middle = f"percentile_cont(0.{chance.randint(0, 9)}) WITHIN GROUP (ORDER BY {name}){kept}"
            found.append((f"CAST({middle} AS NUMERIC(30, 6))", "n"))
        return chance.choice(found)

    def _summed(self, relation: Relation, where: str) -> tuple[str, list[Column]]:
        """Several aggregates by any number of columns."""
        chance = self._random
        groups = chance.sample(relation.columns, min(chance.randint(0, 2), len(relation.columns)))
        named = [self._column(relation, group) for group in groups]
        columns = [Column(self._name(), group.kind) for group in groups]
        items = [f"{text} AS {column.name}" for text, column in zip(named, columns, strict=True)]
        if chance.random() < 0.3:
            columns.append(Column(self._name(), "i"))
            truth = f"{chance.choice(('bool_and', 'bool_or'))}({self._condition(relation)})"
            items.append(f"CASE WHEN {truth} THEN 1 WHEN NOT {truth} THEN 0 END AS {columns[-1].name}")
        for _ in range(chance.randint(1, 3)):
            value = chance.choice(relation.columns)
            call = chance.choice(("count", "min", "max", *(() if value.kind == "t" else ("sum", "avg", "avg"))))
            kind = value.kind if call in ("min", "max") or value.kind == "f" else "n"
            columns.append(Column(self._name(), "i" if call == "count" else kind))
            kept = f" FILTER (WHERE {self._condition(relation)})" if chance.random() < 0.3 else ""
            distinct = "DISTINCT " if chance.random() < 0.3 else ""
            items.append(f"{call}({distinct}{self._column(relation, value)}){kept} AS {columns[-1].name}")
        for _ in range(chance.choice((0, 0, 1, 2))):
            item, kind = self._collected(relation)
            columns.append(Column(self._name(), kind))
            items.append(f"{item} AS {columns[-1].name}")
        numbers = [column for column in relation.columns if column.kind != "t"]
        if numbers and chance.random() < 0.3:
            columns.append(Column(self._name(), "n"))
            call = chance.choice(("var_pop", "var_samp", "stddev_pop", "stddev(DISTINCT", "variance"))
            spread = f"{call}{' ' if '(' in call else '('}{self._column(relation, chance.choice(numbers))})"
            items.append(f"CAST({spread} AS NUMERIC(30, 6)) AS {columns[-1].name}")
        grouping = chance.choice(("{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ({}), ())"))
        if named and grouping != "{}":
            columns.append(Column(self._name(), "i"))
            items.append(f"grouping({', '.join(named)}) AS {columns[-1].name}")
        text = f"SELECT {', '.join(items)} FROM {relation.text}{where}"
        listed = ", ".join(named)
        return text + (f" GROUP BY {grouping.format(listed, named[0])}" if named else ""), columns

    def _joined(self, depth: int) -> Relation:
        """Relations whose columns all have names of their own, so that none needs a qualifier."""
        chance = self._random
        found = self._renamed(depth - 1)
        count = chance.choice((1, 1, 2))
        for number in range(count):
            if chance.random() < 0.25:
                found = self._with_lateral(found, depth)
                continue
            other = self._renamed(depth - 1)
            kind = chance.choice(("JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", ","))
            pairs = [(one.name, two.name) for one in found.columns for two in other.columns
                     if (one.kind == "t") == (two.kind == "t")]
            if kind == "," or not pairs:
                text = f"{found.text}{',' if number == count - 1 else ' CROSS JOIN'} {other.text}"
            else:
                terms = [f"{one} = {two}" for one, two in chance.sample(pairs, chance.randint(1, min(2, len(pairs))))]
                if (kind != "FULL JOIN" or self.is_view) and chance.random() < 0.4:
                    terms.append(self._condition(Relation("", found.columns + other.columns, "")))
                    terms[-1] = f"({terms[-1]})"
                if (kind != "FULL JOIN" or self.is_view) and chance.random() < 0.2:
                    terms = [chance.choice(("{} < {}", "{} IS NOT DISTINCT FROM {}")).format(*chance.choice(pairs))]
                text = f"{found.text} {kind} {other.text} ON {' AND '.join(terms)}"
            found = Relation(text, found.columns + other.columns, "")
        return found

    def _with_lateral(self, found: Relation, depth: int) -> Relation:
        """A relation, and for each of its rows those of a subquery, or of a function."""
        chance = self._random
        join = chance.choice((" CROSS JOIN LATERAL {}", " LEFT JOIN LATERAL {} ON TRUE", " JOIN LATERAL {} ON TRUE"))
        alias, numbers = self._name(), [column for column in found.columns if column.kind == "i"]
        if numbers and chance.random() < 0.25:
            column, made = chance.choice(numbers).name, self._name()
            rows = f"generate_series(CAST({column} AS BIGINT) - 1, {chance.choice((column, '2'))})"
            text = join.format(f"(SELECT CAST(x AS INT) FROM {rows} AS q(x)) AS {alias}({made})")
            return Relation(found.text + text, [*found.columns, Column(made, "i")], "")
        inner, outer = self._renamed(depth - 2), chance.choice(found.columns)
        alike = [column for column in inner.columns if (column.kind == "t") == (outer.kind == "t")]
        where = ""
        if alike:
            operator = chance.choice(("=", "=", "=", "<", ">=", "IS NOT DISTINCT FROM"))
            where = f" WHERE {chance.choice(alike).name} {operator} {outer.name}"
        listed, columns = ", ".join(column.name for column in inner.columns), list(inner.columns)
        form = chance.choice(("rows", "first", "count", "both", "union"))
        body = f"SELECT {listed} FROM {inner.text}{where}"
        if form == "first":
            body += f" ORDER BY {listed} LIMIT {chance.randint(1, 3)}{chance.choice(('', ' OFFSET 1'))}"
        elif form == "count":
            value = chance.choice(inner.columns)
            columns = [Column("c", "i"), Column("m", value.kind)]
            body = f"SELECT CAST(count(*) AS INT), max({value.name}) FROM {inner.text}{where}"
        elif form == "both":
            columns.append(outer)
            body = f"SELECT {listed}, {outer.name} FROM {inner.text}{where}"
        elif form == "union":
            columns = [outer]
            body = f"SELECT {(alike or [outer])[0].name} FROM {inner.text}{where} UNION ALL SELECT {outer.name}"
            columns = [Column("c", max((each.kind for each in (*alike[:1], outer)), key="itnf".index))]
        named = [Column(self._name(), column.kind) for column in columns]
        text = join.format(f"({body}) AS {alias}({', '.join(column.name for column in named)})")
        return Relation(found.text + text, [*found.columns, *named], "")

    def _ranked(self, depth: int) -> Relation:
        """The first rows of a relation, or of its groups. Where only one of equal rows may come, rows are equal in no
        column less than all."""
        chance = self._random
        inner, alias, number = self._renamed(depth - 1), self._name(), self._name()
        names = [column.name for column in inner.columns]
        kind = chance.choice(("limit", "row_number", "rank", "dense_rank"))
        count = len(names) if kind in ("limit", "row_number") else chance.randint(1, len(names))
        words = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        order = ", ".join(f"{name}{chance.choice(words)}" for name in chance.sample(names, count))
        if kind == "limit":
            bounds = f"LIMIT {chance.randint(0, 6)}{chance.choice(('', ' OFFSET 2'))}"
            return Relation(f"(SELECT * FROM {inner.text} ORDER BY {order} {bounds}) AS {alias}", inner.columns, alias)
        group = f"PARTITION BY {chance.choice(names)} " if chance.random() < 0.7 else ""
        listed = ", ".join(names)
        ranked = f"SELECT {listed}, {kind}() OVER ({group}ORDER BY {order}) AS {number} FROM {inner.text}"
        bound = chance.choice(("<= 3", "= 1", "< 3", "BETWEEN 2 AND 4", "= 2"))
        text = f"(SELECT {listed}, CAST({number} AS INT) AS {number} FROM ({ranked}) AS {self._name()} "
        return Relation(f"{text}WHERE {number} {bound}) AS {alias}", [*inner.columns, Column(number, "i")], alias)

    def _windowed(self, depth: int) -> Relation:
        """A relation with the values of window functions. The order is total but for equal rows, unless a frame has all
        of its peers."""
        chance = self._random
        inner, alias = self._renamed(depth - 1), self._name()
        names = [column.name for column in inner.columns]
        columns, items = list(inner.columns), list(names)
        group = f"PARTITION BY {chance.choice(names)} " if chance.random() < 0.7 else ""
        for _ in range(chance.randint(1, 3)):
            call, kind = self._window_call(inner)
            words = ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
            has_peers = call.startswith(("rank", "dense", "percent", "cume", "count", "min", "max", "sum", "avg"))
            numbers = [column.name for column in inner.columns if column.kind != "t"]
            if has_peers and chance.random() < 0.5:
                keys = chance.sample(names, chance.randint(1, len(names)))
                frame = chance.choice(("", "GROUPS", "RANGE"))
                if frame == "RANGE" and numbers and chance.random() < 0.7:
                    keys, frame = [chance.choice(numbers)], "RANGE of values"
            else:
                keys, frame = chance.sample(names, len(names)), chance.choice(("", "ROWS", "ROWS"))
            order = ", ".join(f"{name}{chance.choice(words)}" for name in keys)
            columns.append(Column(self._name(), kind))
            window = f"{group}ORDER BY {order}{self._frame(frame)}"
            target = {"i": "INT", "f": "DOUBLE PRECISION"}.get(kind)
            text = f"{call} OVER ({window})"
            items.append(f"{text if target is None else f'CAST({text} AS {target})'} AS {columns[-1].name}")
        return Relation(f"(SELECT {', '.join(items)} FROM {inner.text}) AS {alias}", columns, alias)

    def _window_call(self, relation: Relation) -> tuple[str, str]:
        """A window function without its window, and the kind of its values."""
        chance = self._random
        value = chance.choice(relation.columns)
        number = chance.choice(("row_number()", "rank()", "dense_rank()", "ntile(3)", "count(*)"))
        other = chance.choice((
            f"lag({value.name})", f"lead({value.name}, 2)", f"lag({value.name}, -1)", f"first_value({value.name})",
            f"last_value({value.name})", f"nth_value({value.name}, 2)"))
        kept = f" FILTER (WHERE {self._condition(relation)})" if chance.random() < 0.3 else ""
        aggregate = f"{chance.choice(('min', 'max'))}({value.name}){kept}"
        turn = chance.random()
        if turn < 0.25:
            return number, "i"
        if turn < 0.3:
            return chance.choice(("percent_rank()", "cume_dist()")), "f"
        if turn < 0.55:
            return other, value.kind
        if turn < 0.65:
            return f"count({value.name}){kept}", "i"
        if self.has_sums and value.kind != "t" and turn < 0.9:
            return f"{chance.choice(('sum', 'avg'))}({value.name}){kept}", "f" if value.kind == "f" else "n"
        return aggregate, value.kind

    def _frame(self, unit: str) -> str:
        """With the offsets of its bounds in order; empty for no unit."""
        chance = self._random
        if not unit:
            return ""
        has_offsets = unit != "RANGE"
        bounds = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if has_offsets:
            bounds[1:1] = ["3 PRECEDING", "1 PRECEDING"]
            bounds[-1:-1] = ["1 FOLLOWING", "2 FOLLOWING"]
        start = chance.randrange(len(bounds) - 1)
        end = chance.randrange(max(start, 1), len(bounds))
        return f" {unit.split()[0]} BETWEEN {bounds[start]} AND {bounds[end]}"

    def _renamed(self, depth: int) -> Relation:
        """A relation under an alias, with new names for all of its columns."""
        found = self._relation(max(depth, 0), is_single=True)
        columns = [Column(self._name(), column.kind) for column in found.columns]
        alias = self._name()
        text = f"(SELECT * FROM {found.text}) AS {alias}({', '.join(column.name for column in columns)})"
        return Relation(text, columns, alias)

    def _relation(self, depth: int, *, is_single: bool = False) -> Relation:
        chance = self._random
        if self.has_joins and depth and not is_single and chance.random() < 0.35:
            return self._joined(depth)
        if self.has_joins and depth and chance.random() < 0.12:
            return self._ranked(depth)
        if self.has_joins and depth and chance.random() < 0.15:
            return self._windowed(depth)
        alias = self._name()
        if depth and chance.random() < 0.35:
            body, columns = self._union(0) if chance.random() < 0.3 else self._select(depth - 1)
            return self._aliased(f"({body})", columns, alias)
        named = dict(self._named)
        if named and chance.random() < 0.6:
            name = chance.choice(list(named))
            columns = named[name]
        elif self.views and chance.random() < 0.3:
            name = chance.choice(list(self.views))
            columns = self.views[name]
        else:
            name = chance.choice([each for each in TABLES if each not in named] or ["u"])
            columns = [Column(*pair) for pair in zip(TABLES[name][2], TABLES[name][1], strict=True)]
        return self._aliased(name, columns, alias) if chance.random() < 0.5 else Relation(name, columns, name)

    def _aliased(self, text: str, columns: list[Column], alias: str) -> Relation:
        chance = self._random
        names, listed = [column.name for column in columns], ""
        if chance.random() < 0.4:
            renamed = [self._name() for _ in columns[: chance.randint(1, len(columns))]]
            names, listed = renamed + names[len(renamed) :], f"({', '.join(renamed)})"
        changed = [Column(name, column.kind) for name, column in zip(names, columns, strict=True)]
        return Relation(f"{text}{chance.choice((' AS ', ' '))}{alias}{listed}", changed, alias)

    def _column(self, relation: Relation, column: Column) -> str:
        if not relation.name:
            return column.name
        return f"{relation.name}.{column.name}" if self._random.random() < 0.5 else column.name

    def _item(self, relation: Relation, kind: str) -> str:
        """An expression of a kind, or of a number that it can hold."""
        chance = self._random
        fitting = "t" if kind == "t" else NUMBERS[: NUMBERS.index(kind) + 1]
        found = [column for column in relation.columns if column.kind in fitting]
        if not found or chance.random() < 0.1:
            return chance.choice((self._constant(kind), f"CAST(NULL AS {'TEXT' if kind == 't' else 'INT'})"))
        column = chance.choice(found)
        name = self._column(relation, column)
        if chance.random() < 0.2:
            return f"upper({name})" if column.kind == "t" else f"-{name}"
        return name

    def _where(self, relation: Relation, depth: int) -> str:
        """A condition, sometimes with a subquery."""
        chance = self._random
        if not self.has_joins or not depth or chance.random() < 0.6:
            return self._condition(relation)
        text = self._subquery(relation, depth)
        if chance.random() < 0.3:
            text = f"NOT {text}"
        if chance.random() < 0.4:
            text = f"({text} {chance.choice(('AND', 'OR'))} ({self._condition(relation)}))"
        return text

    def _subquery(self, relation: Relation, depth: int) -> str:
        """A condition with a query of its own, which may refer to the row of `relation`."""
        chance = self._random
        outer, inner = chance.choice(relation.columns), self._renamed(depth - 2)
        alike = [column for column in inner.columns if (column.kind == "t") == (outer.kind == "t")]
        name = self._column(relation, outer)
        if not alike:
            return f"EXISTS (SELECT * FROM {inner.text} WHERE {self._condition(inner)})"
        own, value = chance.choice(alike).name, chance.choice(inner.columns)
        terms = [f"{own} {chance.choice(('=', '=', '=', '<', '>='))} {name}"] if chance.random() < 0.7 else []
        terms += [f"({self._condition(inner)})"] if chance.random() < 0.5 else []
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        kind = chance.choice(("exists", "in", "not in", "value", "quantified"))
        if kind == "exists":
            return f"EXISTS (SELECT {value.name} FROM {inner.text}{where})"
        if kind == "value":
            call = chance.choice(("count", "min", "max"))
            other = self._constant("i" if call == "count" else value.kind)
            return f"(SELECT {call}({value.name}) FROM {inner.text}{where}) {chance.choice(('<', '>=', '='))} {other}"
        fitting = [column for column in relation.columns if (column.kind == "t") == (value.kind == "t")]
        if kind == "quantified" and fitting:
            compared = f"{chance.choice(('<', '<=', '>', '>=', '<>', '='))} {chance.choice(('ANY', 'ALL', 'SOME'))}"
            tested = self._column(relation, chance.choice(fitting))
            return f"{tested} {compared} (SELECT {value.name} FROM {inner.text}{where})"
        if not fitting or kind == "quantified":
            return f"EXISTS (SELECT {value.name} FROM {inner.text}{where})"
        return f"{self._column(relation, chance.choice(fitting))} {kind} (SELECT {value.name} FROM {inner.text}{where})"

    def _condition(self, relation: Relation) -> str:
        chance = self._random
        column = chance.choice(relation.columns)
        operator = chance.choice(("=", "<>", "<", ">="))
        terms = [f"{self._column(relation, column)} {operator} {self._constant(column.kind)}"]
        if chance.random() < 0.3:
            other = chance.choice(relation.columns)
            terms.append(f"{self._column(relation, other)} IS {chance.choice(('', 'NOT '))}NULL")
        return chance.choice((" AND ", " OR ")).join(terms)

    def _constant(self, kind: str) -> str:
        chance = self._random
        if kind == "t":
            return chance.choice(("'a'", "'b'", "''", "'B'"))
        return str(chance.randint(-3, 6)) if kind == "i" else chance.choice(("0.5", "1", "-2.25"))

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"


def rows(rng: random.Random, table: str, count: int) -> Iterator[tuple]:
    """Rows of a table, with few values and NULLs; the key columns are unique and not NULL."""
    for number in range(count):
        if table == "t":
            number_of = Decimal(rng.randint(-300, 300)).scaleb(-2)
            yield number, rng.choice((None, 1, 2, 5)), rng.choice((None, "", "a", "B")), rng.choice((None, number_of))
        elif table == "u":
            yield rng.choice(("a", "b", "B", "")), number % 7 + 10 * number, rng.choice((None, 0.5, -2.25, 1.0))
        else:
            yield rng.choice((None, 1, 2, 5)), rng.choice((None, "a", "b"))
