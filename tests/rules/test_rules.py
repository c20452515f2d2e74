"""Each optimizer rule by statements with the plan before the rule and after it.

A file has blocks of `-- name`, one statement, `-- before` and `-- after` with the plan as comment lines. The plan
before is the output of the earlier rules in the tuple; `add_stream_key` is a rule of VIEW_RULES, so that its
statements are optimized as views.
"""

from pathlib import Path

import pytest

from relational.plan.optimizer import RULES, VIEW_RULES
from relational.sql import bind_sql
from tests.support.suites.sql_cases import case_catalog

FILES = sorted(Path(__file__).parent.glob("*.sql"))


def blocks():
    for path in FILES:
        for block in path.read_text().strip().split("\n\n"):
            head, _, rest = block.partition("\n")
            statement, _, plans = rest.partition("\n-- before\n")
            before, _, after = plans.partition("\n-- after\n")
            yield pytest.param(path.stem, statement, before, after, id=f"{path.stem}: {head[3:]}")


def commented(plan) -> str:
    return "\n".join(f"--   {line}" for line in plan.explain().split("\n"))


def through(rule_name: str, statement: str):
    """The plan before and after the rule."""
    (bound,) = bind_sql(statement, case_catalog())
    rules = VIEW_RULES if rule_name == "add_stream_key" else RULES
    plan = bound.plan
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
    shown = [name for index, name in enumerate(plan.schema.names) if index not in plan.hidden]
    kept = [name for index, name in enumerate(changed.schema.names) if index not in changed.hidden]
    assert kept == shown, "a rule must keep the visible columns"


def test_every_rule_has_pairs():
    assert {path.stem for path in FILES} == {rule.__name__ for rule in (*RULES, *VIEW_RULES)}
