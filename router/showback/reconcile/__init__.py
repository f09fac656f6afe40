"""Bills laid beside what was metered and planned: matched, differences split into reasons, nothing dropped.

Pure over facts in a DuckDB connection that the caller opens: no file is read or written here.
"""
