"""Parsers from catalogue rows to offers: pure, without network, disk or SDK.

``catalogue`` and ``skypilot`` read the two public CSV forms, ``hosts`` a market of single hosts; ``listing`` makes a
fetch result of them.
"""
