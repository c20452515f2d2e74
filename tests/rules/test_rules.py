"""Each optimizer rule by statements with the plan before the rule and after it.

A file has blocks of `-- name`, one statement, `-- before` and `-- after` with the plan as comment lines. The plan
before is the output of the earlier rules in the tuple, in the first round. Statements of rules for views alone are
optimized as views.
"""

from functools import cache
from pathlib import Path

import pytest

from relational.errors import BindError
from relational.plan.logical import Filter, LogicalPlan, Scan, nodes
from relational.plan.optimizer import (
    DELTA_VIEW_RULES,
    LAST_RULES,
    MAX_DEPTH,
    MAX_ROUNDS,
    PLAIN_VIEW_RULES,
    RULES,
    SINK_RULES,
    VIEW_RULES,
    optimize,
)
from relational.sql import bind_sql
from relational.sql.statement import Insert
from tests.support.suites.node_kinds import kinds
from tests.support.suites.sql_cases import CASES, case_catalog, catalog_of

FILES = sorted(Path(__file__).parent.glob("*.sql"))
ALL_RULES = {rule.__name__: rule for rule in (*RULES, *VIEW_RULES, *SINK_RULES, *LAST_RULES, *PLAIN_VIEW_RULES)}
OWNED = ("pruned", "filtered", "keyed")
"""What a kind of node says about rules; the rules that call it, below."""
CALLERS = ("prune_columns", "push_down_filter", "add_stream_key")


def blocks():
    for path in FILES:
        for block in path.read_text().strip().split("\n\n"):
            head, _, rest = block.partition("\n")
            statement, _, plans = rest.partition("\n-- before\n")
            before, _, after = plans.partition("\n-- after\n")
            yield pytest.param(path.stem, statement, before, after, id=f"{path.stem}: {head[3:]}")


def commented(plan) -> str:
    return "\n".join(f"--   {line}" for line in plan.explain().split("\n"))


@cache
def catalog():
    """The tables of the rules' cases and of the queries."""
    return catalog_of(f"{(CASES / 'binder_schema.sql').read_text()};{SALES}")


def bound(statement: str) -> LogicalPlan:
    (found,) = bind_sql(statement, catalog())
    return found.query if isinstance(found, Insert) else found.plan


def through(rule_name: str, statement: str):
    """The plan before and after the rule."""
    plan = bound(statement)
    if rule_name in {rule.__name__ for rule in LAST_RULES}:
        plan = optimize(plan, SINK_RULES)
    tuples = (RULES, VIEW_RULES, SINK_RULES, LAST_RULES)
    rules = next(rules for rules in tuples if rule_name in {rule.__name__ for rule in rules})
    for rule in rules:
        if rule.__name__ == rule_name:
            return plan, rule(plan)
        plan = rule(plan)
    raise AssertionError(f"no rule {rule_name}")


@pytest.mark.parametrize(("rule", "statement", "before", "after"), list(blocks()))
def test_rule(rule, statement, before, after):
    plan, changed = through(rule, statement)
    assert commented(plan) == before
    assert commented(changed) == after
    assert [changed.schema[column].name for column in changed.visible] == [
        plan.schema[column].name for column in plan.visible
    ], "a rule must keep the visible columns"
    assert ALL_RULES[rule](changed) is changed, "a rule that changes nothing returns the same plan"


def test_every_rule_has_pairs():
    assert {path.stem for path in FILES} == ALL_RULES.keys()


SALES = """CREATE TABLE sales (id INT PRIMARY KEY, region VARCHAR, kind VARCHAR, amount INT, price NUMERIC(10, 2),
    weight DOUBLE PRECISION, big BIGINT, sold TIMESTAMP);
    CREATE TABLE lots (id INT PRIMARY KEY, kind VARCHAR, reserve INT) APPEND ONLY;
    CREATE TABLE parts (lot INT, part INT, kind VARCHAR, PRIMARY KEY (lot, part)) APPEND ONLY;"""
QUERIES = [line for line in (CASES / "queries.txt").read_text().split("\n") if line and not line.startswith("#")]
STATEMENTS = [*(block.values[1] for block in blocks()), *QUERIES]


@pytest.mark.parametrize(
    "rules", [RULES, VIEW_RULES, DELTA_VIEW_RULES, SINK_RULES], ids=["query", "view", "delta joins", "sink"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_rules_end_in_a_fixed_point(statement, rules):
    plan = optimize(bound(statement), rules)
    for rule in rules:
        assert rule(plan) is plan, rule.__name__


def test_the_number_of_rounds_has_a_bound():
    plan, calls = Scan(case_catalog().resolve("orders")), []

    def restless(plan: LogicalPlan) -> LogicalPlan:
        calls.append(plan)
        return Scan(plan.table, plan.columns[::-1])

    optimize(plan, (restless,))
    assert len(calls) == MAX_ROUNDS


@pytest.mark.parametrize("rules", [RULES, VIEW_RULES, SINK_RULES], ids=["query", "view", "sink"])
def test_a_plan_that_is_too_deep_is_refused(rules):
    plan = bound("SELECT max(amount) FROM orders WHERE id > 1")
    predicate = next(node.predicate for node in nodes(plan) if isinstance(node, Filter))
    deepest = Filter(plan, predicate)
    while deepest.depth < MAX_DEPTH:
        deepest = Filter(deepest, predicate)
    assert optimize(deepest, rules).explain()
    with pytest.raises(BindError, match=f"deeper than {MAX_DEPTH} operations"):
        optimize(Filter(deepest, predicate), rules)


# -- every kind of node --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", CALLERS)
def test_a_rule_has_a_case_for_every_kind_of_node(rule):
    seen = set()
    for block in blocks():
        stem, statement, *_ = block.values
        if stem == rule:
            seen |= {type(node) for node in nodes(through(rule, statement)[0])}
    unseen = {"Limit", "Sort"} if rule == "add_stream_key" else {"TopN"}       # before and after rank_to_top_n
    files = {"ExternalScan"}        # which are read in tests/stream/session/test_files.py
    assert {kind.__name__ for kind in kinds(LogicalPlan) - seen} == unseen | files


@pytest.mark.parametrize("method", OWNED)
def test_a_kind_of_node_says_what_a_rule_does_with_it(method):
    inherited = {kind.__name__ for kind in kinds(LogicalPlan) if method not in kind.__dict__}
    assert inherited <= {"Values", "ColumnValues", "WorkingTable", "OverWindow", "TopN"}, "some share their base"
