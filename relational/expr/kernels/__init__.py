"""Kernels: functions from columns to a column, by type family."""
