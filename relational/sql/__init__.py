"""SQL text: `bind_sql(text, catalog)` yields its statements, bound to a catalog."""

from relational.sql.binder import bind_sql
from relational.sql.introspect import describe, show

__all__ = ["bind_sql", "describe", "show"]
