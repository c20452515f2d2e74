"""Rewrites a logical plan into an equivalent one, by rules in an explicit order, until none of them changes it.

A rule is a function of a whole plan in its own file, with before/after pairs in `tests/rules`. It returns the same
object if it changes nothing. Every rule preserves the visible columns of the root; `add_stream_key` may append hidden
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

from relational.errors import BindError
from relational.plan.logical import LogicalPlan
from relational.plan.rules.add_stream_key import add_state_keys, add_stream_key
from relational.plan.rules.dependent_groups import dependent_groups, implied_equalities
from relational.plan.rules.drop_distinct import drop_distinct
from relational.plan.rules.drop_sort import drop_sort
from relational.plan.rules.filter_domains import filter_domains
from relational.plan.rules.flag_filters import flag_filters
from relational.plan.rules.group_extremes import group_extremes
from relational.plan.rules.inline_shares import inline_shares, repeat_cheap_shares
from relational.plan.rules.merge_projects import merge_projects
from relational.plan.rules.order_joins import order_joins, order_lookups, share_terms
from relational.plan.rules.own_extremes import own_extremes
from relational.plan.rules.prune_columns import prune_columns
from relational.plan.rules.push_down_filter import push_down_filter
from relational.plan.rules.push_down_semi_joins import push_down_semi_joins
from relational.plan.rules.rank_to_top_n import rank_to_top_n
from relational.plan.rules.share_scans import share_scans
from relational.plan.rules.values_beside import values_beside
from relational.plan.rules.window_extremes import window_extremes
from relational.plan.rules.window_panes import window_panes

Rule = Callable[[LogicalPlan], LogicalPlan]
MAX_ROUNDS = 8
MAX_DEPTH = 200
"""Nodes on the longest path of a plan: the rules call each other's continuation for every node."""

RULES: tuple[Rule, ...] = (
    inline_shares,
    repeat_cheap_shares,
    share_terms,
    push_down_filter,
    filter_domains,
    order_joins,
    push_down_semi_joins,
    group_extremes,
    dependent_groups,
    implied_equalities,
    drop_distinct,
    drop_sort,
    prune_columns,
    merge_projects,
)
"""For a query at one epoch."""

PLAIN_VIEW_RULES: tuple[Rule, ...] = (inline_shares, push_down_filter, prune_columns, merge_projects)
"""For the query of a view, which is inlined where it is read."""

VIEW_RULES: tuple[Rule, ...] = (
    inline_shares,
    values_beside,
    share_scans,
    share_terms,
    push_down_filter,
    filter_domains,
    order_lookups,
    own_extremes,
    window_extremes,
    window_panes,
    rank_to_top_n,
    group_extremes,
    dependent_groups,
    implied_equalities,
    drop_distinct,
    add_stream_key,
    prune_columns,
    merge_projects,
)
"""For a materialized view: every row is identifiable."""

DELTA_VIEW_RULES: tuple[Rule, ...] = tuple(order_joins if rule is order_lookups else rule for rule in VIEW_RULES)
"""For a materialized view with delta joins, of which the query says which tables are joined."""

SINK_RULES: tuple[Rule, ...] = tuple(add_state_keys if rule is add_stream_key else rule for rule in VIEW_RULES)
"""For a sink: as for a materialized view, but only the inputs of stateful nodes have keys."""

LAST_RULES: tuple[Rule, ...] = (flag_filters,)
"""For what is kept up to date, behind VIEW_RULES or SINK_RULES, once: these would undo them."""


def optimize(plan: LogicalPlan, rules: tuple[Rule, ...] = RULES, last: tuple[Rule, ...] = ()) -> LogicalPlan:
    """The plan after all rules, in order, over and over until none of them changes it, at most MAX_ROUNDS times; then
    after each of `last`. BindError for a plan that is too deep."""
    if plan.depth > MAX_DEPTH:
        raise BindError(f"a query is nested deeper than {MAX_DEPTH} operations")
    unchanged = 0
    for rule in islice(cycle(rules), MAX_ROUNDS * len(rules)):
        before, plan = plan, rule(plan)
        unchanged = unchanged + 1 if plan is before else 0
        if unchanged == len(rules):
            break
    for rule in last:
        plan = rule(plan)
    return plan
