"""The block cache and its admission policy."""
