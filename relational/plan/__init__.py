"""What a query or a view means: relational algebra, built, bound, rewritten and stored."""
