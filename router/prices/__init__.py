"""Prices over time: stored books, refresh, history."""
