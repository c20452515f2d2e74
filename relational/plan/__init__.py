"""Logical plans of queries and views: relational algebra, built, bound, rewritten and serialized."""
