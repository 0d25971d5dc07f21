"""Schedules found by rule, without a solver."""
