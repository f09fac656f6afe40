"""What a deadline costs before a job runs, and what to do with its gang when the weather turns.

``play`` (jobs against weather) <- ``weather`` (what is expected of spot) <- ``policies`` <- ``quotes`` <- ``deciding``
(under way) and ``backtest``.

Layer: above planning; pure, no I/O.
"""
