"""Searches; what each returns is certified."""
