"""Reconcile bills with what was metered and planned: match rows, split differences into reasons, drop nothing.

Pure over facts in a DuckDB connection that the caller opens: no file is read or written here.
"""
