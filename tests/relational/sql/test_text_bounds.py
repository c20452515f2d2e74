"""Limits of SQL text: depth, length and messages; and no argument of a sqlglot node is ignored."""

import itertools
import threading
from collections.abc import Iterator

import pytest
from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokens import TokenType

from relational.errors import BindError, ParseError, SourceTextError
from relational.expr.expression import Call
from relational.plan.logical import Filter
from relational.plan.optimizer import optimize
from relational.plan.serialize import plan_from_text
from relational.sql import bind_sql
from relational.sql.grammar import DIALECT
from relational.sql.lexer import Piece, statements
from relational.sql.nodes import KNOWN
from relational.sql.tree import MAX_DEPTH, parse
from tests.support.drivers.batch_session import NOW
from tests.support.suites.sql_cases import case_catalog

LEVELS = MAX_DEPTH - 5
NESTED = {
    "parentheses": ("SELECT {}1{} FROM orders", "(", ")"),
    "additions": ("SELECT {}id{} FROM orders", "", " + 1"),
    "grouped additions": ("SELECT {}id{} FROM orders", "(", " + 1)"),
    "functions": ("SELECT {}id{} FROM orders", "abs(", ")"),
    "casts": ("SELECT {}id{} FROM orders", "CAST(", " AS BIGINT)"),
    "short casts": ("SELECT {}id{} FROM orders", "(", ")::BIGINT"),
    "negations": ("SELECT {}id = 1{} FROM orders", "NOT (", ")"),
    "cases": ("SELECT {}id{} FROM orders", "CASE WHEN id > 1 THEN 1 ELSE ", " END"),
    "arrays": ("SELECT {}id{} FROM orders", "ARRAY[", "]"),
    "minus": ("SELECT {}id{} FROM orders", "-(", ")"),
}
DEEPER = {
    **NESTED,
    "queries": ("SELECT * FROM {}orders{}", "(SELECT * FROM ", ") AS a"),
    "scalar queries": ("SELECT {}1{}", "(SELECT ", ")"),
    "subscripts": ("SELECT {}id{} FROM orders", "", "[1]"),
    "inner subscripts": ("SELECT {}id{} FROM orders", "id[", "]"),
    "signs": ("SELECT {}id{} FROM orders", "- ", ""),
    "words": ("SELECT {}id{} FROM orders", "NOT ", ""),
    "types": ("SELECT CAST(id AS {}INT{}) FROM orders", "STRUCT<a ", ">"),
    "type arguments": ("SELECT CAST(id AS {}INT{}) FROM orders", "DECIMAL(", ")"),
    "braces": ("SELECT {}1{} FROM orders", "{'a': ", "}"),
    "joins": ("SELECT * FROM orders {}{}", "JOIN (orders ", ")"),
    "lists": ("SELECT * FROM orders WHERE {}1{}", "id IN (", ")"),
    "filters": ("SELECT {}1{} FROM orders", "count(id) FILTER (WHERE ", ")"),
    "rows": ("VALUES {}1{}", "(", ")"),
    "maps": ("SELECT {}1{} FROM orders", "MAP[", "]"),
    "types before values": ("SELECT {}1{} FROM orders", "TIMESTAMP(", ")"),
    "lambdas": ("SELECT {}1{} FROM orders", "f(x -> ", ")"),
    "from": ("SELECT * FROM {}orders{}", "(", ")"),
    "with": ("WITH a AS ({}SELECT 1{}) SELECT 1", "(", ")"),
    "united": ("SELECT 1{}{}", " UNION (SELECT 1", ")"),
}


@pytest.fixture(scope="module")
def catalog():
    return case_catalog()


def one(text, catalog):
    (statement,) = bind_sql(text, catalog)
    return statement


def nested(form: tuple[str, str, str], levels: int) -> str:
    text, before, after = form
    return text.format(before * levels, after * levels)


@pytest.mark.parametrize("form", NESTED.values(), ids=NESTED)
def test_what_is_nested_within_the_bound_is_bound_and_planned(form, catalog):
    statement = one(nested(form, LEVELS), catalog)
    assert optimize(statement.plan).explain()
    one(f"CREATE MATERIALIZED VIEW v AS {nested(form, LEVELS)}".replace("FROM orders", "AS a FROM orders"), catalog)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 150, 300, 3_000])
@pytest.mark.parametrize("form", DEEPER.values(), ids=DEEPER)
def test_what_is_nested_deeper_is_refused_at_its_position(form, levels, catalog):
    with pytest.raises((ParseError, BindError)) as caught:
        one(nested(form, levels), catalog)
    assert caught.value.start is not None
    assert len(str(caught.value).encode()) < 2_048


def test_a_deep_statement_is_bound_in_a_thread_of_its_own_too(catalog):
    found = []
    text = nested(NESTED["functions"], LEVELS)
    threads = [threading.Thread(target=lambda: found.append(one(text, catalog))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8


@pytest.mark.parametrize(("word", "function"), [("OR", "or"), ("AND", "and")])
def test_a_chain_is_a_list(word, function, catalog):
    text = f" {word} ".join(f"id = {number}" for number in range(4_000))
    predicate = one(f"SELECT * FROM orders WHERE {text}", catalog).plan.input.predicate
    assert isinstance(predicate, Call) and predicate.function == function
    assert len(predicate.args) == 4_000


def test_a_chain_that_is_parenthesised_pair_by_pair_is_one_list(catalog):
    text = "(" * 90 + "id = 0" + "".join(f" OR id = {number})" for number in range(90))
    assert len(one(f"SELECT * FROM orders WHERE {text}", catalog).plan.input.predicate.args) == 91


def test_a_concatenation_is_a_list(catalog):
    expression = one(f"SELECT {' || '.join(['region'] * 2_000)} FROM orders", catalog).plan.expressions[0]
    assert expression.function == "concat" and len(expression.args) == 2_000


def _plans(plan):
    return [plan, *(below for child in plan.inputs for below in _plans(child))]


@pytest.mark.parametrize("column", ["id", "amount", "region", "at"])
def test_an_in_list_of_ten_thousand_is_one_lookup(column, catalog):
    members = {"region": "'x{}'", "at": "'2020-01-01 00:00:00.{}'"}.get(column, "{}")
    text = ", ".join(members.format(number) for number in range(10_000))
    statement = one(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM orders WHERE {column} IN ({text})", catalog)
    predicate = next(part for part in _plans(statement.plan) if isinstance(part, Filter)).predicate
    assert predicate.function == "in_list" and len(predicate.args[1].value) == 10_000
    assert plan_from_text(statement.view.plan, catalog.get) == statement.plan
    assert len(statement.plan.explain()) < 500


def test_a_fault_of_the_grammar_is_an_error_of_the_statement(catalog, monkeypatch):
    grammar, text = parse.__globals__["DIALECT"].parser_class, "SELECT 1; SELECT * FROM t WHERE x"
    whole = grammar.parse

    def faulty(self, tokens, sql):
        return len(None) if "FROM" in sql else whole(self, tokens, sql)

    monkeypatch.setattr(grammar, "parse", faulty)
    with pytest.raises(ParseError, match="not understood") as caught:
        list(bind_sql(text, catalog))
    assert caught.value.start == text.rindex("SELECT")


@pytest.mark.parametrize("join", [" JOIN pairs", " LEFT JOIN pairs", ", pairs", " CROSS JOIN pairs"])
def test_a_row_of_joins_is_read_once(join, catalog):
    """A parser that retries at each JOIN without ON takes exponential time."""
    with pytest.raises(SourceTextError, match=r"JOIN needs ON|occurs twice"):
        one(f"SELECT * FROM orders{join * 40}", catalog)


REFUSED = [
    "SELECT t.* REPLACE (1 AS id) FROM orders AS t",
    "SELECT * REPLACE (1 AS id) FROM orders",
    "SELECT * RENAME (id AS x) FROM orders",
    "SELECT now(1)",
    "SELECT current_timestamp(3)",
    "SELECT random(1)",
    "SELECT INTERVAL '6 months ago'",
    "SELECT 1_000",
    "SELECT 1e999",
    "SELECT 1e",
    "SELECT id FROM ONLY orders",
    "SELECT id FROM orders TABLESAMPLE (10)",
    "SELECT id FROM orders LIMIT 3, 4",
    "SELECT id FROM orders LIMIT 3 PERCENT",
    "SELECT id FROM orders FETCH FIRST 3 ROWS WITH TIES",
    "SELECT id NOT NULL FROM orders",
    "SELECT id <=> 1 FROM orders",
    "SELECT ceil(amount TO day) FROM orders",
    "SELECT trim(region COLLATE 'C') FROM orders",
    "SELECT abs(id ORDER BY id) FROM orders",
    "SELECT count(*) FROM orders GROUP BY DISTINCT ROLLUP (id)",
    "SELECT sum(id) IGNORE NULLS FROM orders",
    "SELECT sum(id LIMIT 3) FROM orders",
    "SELECT [1, 2]",
    "SELECT {'a': 1}",
    "SELECT 'a' 'b'",
    "SELECT x'ff'",
    "SELECT TRY_CAST(id AS INT) FROM orders",
    "SELECT CAST('1' AS INT FORMAT 'x')",
    "SELECT id FROM orders GROUP BY ALL",
    "SELECT id INTO x FROM orders",
    "SELECT id FROM orders FOR UPDATE",
    "SELECT id FROM orders ORDER BY id WITH FILL",
    "SELECT id FROM orders AS t (a)",
    "SELECT substring(region FOR 1 FROM 2) FROM orders",
    "SELECT extract(year, at) FROM orders",
    "SELECT id DIV 2 FROM orders",
    "SELECT id FROM orders QUALIFY id > 1",
    "SELECT /*+ hint */ TOP 1 id FROM orders",
    "UPDATE orders SET amount = 1 RETURNING id LIMIT 1",
    "UPDATE orders SET amount = 1 ORDER BY id LIMIT 3",
    "DELETE FROM orders LIMIT 1",
    "DELETE orders",
    "SELECT '\ud800'",
    "SELECT id, FROM orders",
    "SELECT abs(id,) FROM orders",
    "SELECT id FROM orders WHERE id IN (1, , 2)",
    "SELECT id FROM orders ORDER BY id,",
    "SELECT\r\n\tid $> 1\rFROM orders",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_used_is_refused_at_its_position(text, catalog):
    with pytest.raises(SourceTextError) as caught:
        one(text, catalog)
    assert caught.value.start is not None
    assert "<Token" not in str(caught.value) and "sqlglot" not in str(caught.value)


SAME = [
    ("SELECT id FROM orders WHERE id != 1", "SELECT id FROM orders WHERE id <> 1"),
    ("SELECT id::INT FROM orders", "SELECT CAST(id AS INT) FROM orders"),
    ("SELECT id FROM orders WHERE at ISNULL", "SELECT id FROM orders WHERE at IS NULL"),
    ("SELECT id FROM orders WHERE at NOTNULL", "SELECT id FROM orders WHERE at IS NOT NULL"),
    ("SELECT ALL id FROM orders LIMIT ALL", "SELECT id FROM orders"),
    ("SELECT + id FROM orders", 'SELECT id AS "?column?" FROM orders'),
    ("SELECT id FROM orders WHERE region ~~ 'a%'", "SELECT id FROM orders WHERE region LIKE 'a%'"),
    ("SELECT like(region, 'a%') AS x FROM orders", "SELECT region LIKE 'a%' AS x FROM orders"),
    ("SELECT E'it\\'s \\x41\\n' AS x", "SELECT 'it''s A\n' AS x"),
    ("SELECT trim(LEADING 'x' FROM region) FROM orders", "SELECT ltrim(region, 'x') FROM orders"),
    ("SELECT substring(region FROM 2 FOR 3) FROM orders", "SELECT substring(region, 2, 3) FROM orders"),
    ("SELECT date_part('year', at) AS x FROM orders", "SELECT CAST(extract(YEAR FROM at) AS DOUBLE) AS x FROM orders"),
    ("SELECT id FROM orders OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY", "SELECT id FROM orders LIMIT 3 OFFSET 2"),
    ("SELECT .5, 5. /* a /* b */ c */ -- d", "SELECT 0.5, 5"),
    ("SELECT INTERVAL '3' DAY AS x", "SELECT INTERVAL '3 days' AS x"),
]


@pytest.mark.parametrize(("text", "other"), SAME)
def test_two_ways_to_write_one_thing(text, other, catalog):
    assert one(text, catalog).plan.explain().lower() == one(other, catalog).plan.explain().lower()


def test_like_as_a_function_takes_the_text_first(catalog):
    assert one("SELECT like('a', 'a%')", catalog).plan.explain().startswith("Project TRUE")


@pytest.mark.parametrize("text", ["SELECT ';' || \"a;\" || E'\\';' || $$;$$ -- ;", "SELECT 1 /* ; /* ; */ ; */"])
def test_a_semicolon_inside_of_something_ends_no_statement(text):
    assert [piece.source.strip() for piece in statements(f"{text}\n; SELECT 2;")] == [text, "SELECT 2"]


PARTS = ["'", '"', ";", "--", "\n", " /* ", " */ ", "$$", "$a$", "$1", "E'", "e'", "\\", "''", " ", "a", "1", "xe'",
         "(;)"]


def test_statements_are_parted_where_the_tokens_say(rng):
    seen = 0
    for _ in range(20_000):
        text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 12)))
        try:
            tokens = DIALECT.tokenize(text)
        except TokenError:
            continue
        ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
        wanted = [text[first + 1 : last] for first, last in itertools.pairwise([-1, *ends, len(text)])]
        found = [piece.source for piece in statements(text)]
        wanted = [each for each in wanted if not Piece(each, 0, len(each)).is_empty]
        if wanted:  # a semicolon at the end of the text may be part of a comment
            wanted[-1], found[-1] = (each.rstrip().removesuffix(";").rstrip() for each in (wanted[-1], found[-1]))
        assert found == wanted, repr(text)
        seen += len(found)
    assert seen > 5_000


LONG = 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '{}",
        "SELECT '{}'::INT",
        "SELECT {} FROM orders",
        "SELECT {}() FROM orders",
        "SELECT * FROM {}",
        "SELECT {}.id FROM orders",
        "SELECT CAST(1 AS {})",
        "{} 1",
        "SELECT 1 {} 2 3",
        "DROP TABLE {}",
        "SELECT {}",
        "INSERT INTO orders ({}) VALUES (1)",
        "SHOW TABLES FROM {}",
        "CREATE TABLE t (a INT DEFAULT '{}')",
    ],
)
@pytest.mark.parametrize("letter", ["a", "é", "9"])
def test_no_message_is_above_two_kilobytes(text, letter, catalog):
    with pytest.raises(SourceTextError) as caught:
        one(text.format(letter * LONG), catalog)
    assert len(str(caught.value).encode()) < 2_048


def test_a_text_that_is_too_long_is_refused(catalog):
    with pytest.raises(ParseError, match="characters"):
        one("SELECT 1" + " " * (16 << 20), catalog)


# -- every argument of every node ----------------------------------------------------------------------

EXAMPLES = """SELECT DISTINCT t.*, t.id AS a, -id + 1 - 2 * 3 / 4 % 5, +id, 'a' || 'b', NOT id = 1, id <> 1, id < 1,
    id <= 1 FROM orders AS t WHERE id > 1 AND id >= 2 OR id IS NOT DISTINCT FROM 3
    ORDER BY id DESC NULLS FIRST LIMIT 3 OFFSET 4;
SELECT id IS DISTINCT FROM 1, region LIKE 'a', region ILIKE 'a', id BETWEEN 1 AND 2, id IN (1, 2), ARRAY[1, 2], abs(id),
    CAST(id AS INT), CASE WHEN TRUE THEN NULL ELSE 1 END, INTERVAL '1' DAY, current_date, current_time, E'a',
    id IS NULL, current_timestamp, localtimestamp, t.id FROM (SELECT * FROM orders) AS t FETCH FIRST 3 ROWS ONLY;
SELECT count(*) FILTER (WHERE id = 1), max(DISTINCT id) FROM orders GROUP BY id HAVING count(*) > 1;
VALUES (1), (2);
SELECT id FROM orders LIMIT ALL;
SELECT (1);
SELECT ?;
UPDATE orders SET amount = 1 WHERE id = 1;
DELETE FROM orders WHERE id = 1;
WITH c(x) AS (SELECT id FROM orders) SELECT x FROM c AS d UNION ALL SELECT id FROM orders AS o(id)
    ORDER BY 1 LIMIT 5 OFFSET 2;
WITH e AS (SELECT 1 AS a) ((SELECT a FROM e) ORDER BY a LIMIT 1 OFFSET 1) UNION SELECT a FROM e;
WITH f AS (SELECT 1 AS a) (SELECT a FROM f LIMIT 2) ORDER BY a;
SELECT a.b.c.d.e FROM orders;
SELECT o.id FROM orders AS o LEFT OUTER JOIN pairs AS p ON o.id = p.a CROSS JOIN plain;
SELECT id FROM orders WHERE EXISTS (SELECT a FROM pairs) AND id IN (SELECT v FROM plain);
SELECT o.id FROM log AS l JOIN orders FOR SYSTEM_TIME AS OF PROCTIME() AS o ON l."Id" = o.id;
SELECT sum(id) OVER (w ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) FROM orders
    WINDOW w AS (PARTITION BY region);
SELECT mode() WITHIN GROUP (ORDER BY id) FROM orders GROUP BY ROLLUP (region), CUBE (id), GROUPING SETS ((at), ());
SELECT id FROM orders EXCEPT ALL SELECT a FROM pairs INTERSECT SELECT v FROM plain ORDER BY 1 LIMIT 3 OFFSET 1;
SELECT DISTINCT ON (id) id FROM orders;
SELECT x.a FROM orders AS o CROSS JOIN LATERAL jsonb_to_recordset('[]') AS x(a INT);
SELECT id & 1, (ARRAY[1, 2])[1], (ARRAY[1, 2])[1:2], at AT TIME ZONE 'UTC', make_interval(days => 1),
    region SIMILAR TO 'a', region LIKE ANY(ARRAY['a']), region LIKE ALL(ARRAY['a']), region LIKE 'a' ESCAPE '!',
    id BETWEEN SYMMETRIC 2 AND 1, $$a$$, region COLLATE "C", 'a'
    'b' FROM orders"""


def samples() -> Iterator[tuple[Piece, type]]:
    """For each kind of node a statement that contains one."""
    found = {}
    for piece in statements(EXAMPLES):
        for node in parse(piece).node.walk():
            found.setdefault(type(node), piece)
    assert not set(KNOWN) - set(found), "no example of a node"
    for kind in KNOWN:
        yield found[kind], kind


SWEPT = [(piece, kind, name) for piece, kind in samples() for name in kind.arg_types if name not in KNOWN[kind].args]


@pytest.mark.parametrize(("piece", "kind", "name"), SWEPT, ids=[f"{kind.__name__}.{name}" for _, kind, name in SWEPT])
def test_an_argument_that_is_not_used_is_refused(piece, kind, name, monkeypatch):
    """sqlglot's parser is patched to set one more argument of one node."""
    grammar = parse.__globals__["DIALECT"].parser_class
    whole = grammar.parse

    def with_one_more(self, tokens, sql):
        trees = whole(self, tokens, sql)
        node = next(node for node in trees[0].walk() if type(node) is kind)
        node.args[name] = exp.Parameter() if name in KNOWN[kind].settled else True
        return trees

    monkeypatch.setattr(grammar, "parse", with_one_more)
    with pytest.raises(ParseError) as caught:
        parse(piece)
    assert caught.value.start is not None


FLAGS = {"quoted", "is_string", "direction", "rows", "limit_options", "negate", "desc", "nulls_first"}


def used() -> Iterator[tuple[Piece, type, str]]:
    """The arguments of each kind of node that are nodes themselves, with a statement that contains them."""
    for piece, kind in samples():
        found = [node for node in parse(piece).node.walk() if type(node) is kind is not exp.Dot]
        for name in KNOWN[kind].args - FLAGS:
            if any(_is_node(node.args.get(name)) for node in found):
                yield piece, kind, name


def _is_node(part) -> bool:
    return isinstance(part, exp.Expression) or (isinstance(part, list) and bool(part))


USED = sorted(used(), key=lambda each: (each[1].__name__, each[2]))


@pytest.mark.parametrize(("piece", "kind", "name"), USED, ids=[f"{kind.__name__}.{name}" for _, kind, name in USED])
def test_an_argument_that_is_used_is_not_passed_over(piece, kind, name, catalog, monkeypatch):
    """Without it, or with a meaningless node instead, the result is another statement or an error."""
    parts = [exp.Identifier(this=word, quoted=False) for word in "xy"]
    nonsense = exp.Dot(this=parts[0], expression=parts[1])
    bound = outcome(piece, catalog)
    assert isinstance(bound, list), bound
    whole, others = parse.__globals__["_check_words"], []
    for instead in (None, nonsense):

        def changed(nodes, tokens, tree, instead=instead):
            whole(nodes, tokens, tree)
            node = next(node for node in nodes if type(node) is kind and _is_node(node.args.get(name)))
            node.args[name] = [instead] * bool(instead) if isinstance(node.args[name], list) else instead

        monkeypatch.setitem(parse.__globals__, "_check_words", changed)
        others.append(outcome(piece, catalog))
    assert any(other != bound for other in others)


def outcome(piece, catalog) -> object:
    """The bound statements of a piece, or its error."""
    try:
        return list(bind_sql(piece.source, catalog, NOW))
    except (SourceTextError, AttributeError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def test_arguments_that_the_dialect_sets_are_few():
    """`settled` arguments are set by sqlglot's parser from the dialect alone, never from the text."""
    settled = {kind: known.settled for kind, known in KNOWN.items() if known.settled}
    assert settled == {exp.Div: {"typed", "safe"}, exp.DPipe: {"safe"}, exp.Window: {"over"}}


TRANSLATED = [kind for kind in exp.ALL_FUNCTIONS if kind not in KNOWN]


@pytest.mark.parametrize("kind", TRANSLATED, ids=lambda each: each.__name__)
def test_no_function_is_a_node_of_its_own(kind):
    """Functions are parsed to their names, with the arguments in the order of the text."""
    for name in kind.sql_names():
        try:
            (piece,) = statements(f"SELECT {name}(a, 'b')")
            call = parse(piece).node.expressions[0]
        except ParseError:
            continue
        assert type(call) is exp.Anonymous and call.name.upper() == name, name
        assert [type(arg) for arg in call.expressions] == [exp.Column, exp.Literal], name
