"""filter_domains: which conditions a domain gets, beside the pairs of filter_domains.sql."""

from dataclasses import dataclass

from relational.expr.expression import Literal, conjunction, conjuncts
from relational.plan.descent import transformed
from relational.plan.logical import Filter, Project, Scan, Share, nodes
from relational.plan.optimizer import RULES, VIEW_RULES, optimize
from relational.plan.rules.filter_domains import filter_domains
from relational.plan.rules.push_down_filter import push_down_filter
from relational.types.data_type import DataType
from tests.rules.test_rules import bound

LATERAL = "LATERAL (SELECT sum(b) AS s FROM pairs WHERE a < amount + {n} AND b > {n}) AS x{n}"


@dataclass(frozen=True, slots=True)
class Toss(Literal):
    """True or false by chance."""

    @property
    def is_volatile(self) -> bool:
        return True


def test_what_chance_decides_is_decided_once():
    plan = bound(f"SELECT id FROM orders, {LATERAL.format(n=1)} WHERE id > 5 AND region = 'n'")

    def tossed(node):
        if not isinstance(node, Filter) or len(conjuncts(node.predicate)) != 2 or "region" not in node.summary:
            return node
        first, last = conjuncts(node.predicate)
        return Filter(node.input, conjunction((first, Toss(True, DataType.BOOLEAN), last)))

    changed = filter_domains(transformed(push_down_filter(plan), tossed))
    filters = [node for node in nodes(changed) if isinstance(node, Filter)]
    (of_all,) = (node for node in filters if isinstance(node.input, Scan) and node.input.table.name == "orders")
    (of_rows,) = (conjuncts(node.predicate) for node in filters if isinstance(node.input, Share))
    assert of_all.summary == "Filter (id > 5)"
    assert [each.is_volatile for each in of_rows] == [True, False]


def test_a_condition_reaches_the_domains_of_any_number_of_subqueries():
    many = ", ".join(LATERAL.format(n=number) for number in range(12))
    plan = bound(f"SELECT id FROM orders, {many} WHERE region = 'n'")
    for rules in (RULES, VIEW_RULES):
        found = optimize(plan, rules)
        filters = [node for node in nodes(found) if isinstance(node, Filter) and "region" in node.summary]
        assert all(not isinstance(node.input, Filter | Project) for node in filters)
        assert len(filters) == (2 if rules is RULES else 1)
