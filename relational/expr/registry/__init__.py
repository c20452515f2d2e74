"""Rows of the function registry by family; `relational.expr.functions` joins them."""
