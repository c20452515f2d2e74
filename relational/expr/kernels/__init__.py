"""Kernels: functions of columns to a column, per family of types."""
