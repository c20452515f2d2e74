"""Values of rows as bytes that lose nothing and outlive schemas."""
