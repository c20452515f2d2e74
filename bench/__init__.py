"""Micro benchmarks: speeds as ratios to peers in the same run (pytest bench --benchmark-only)."""
