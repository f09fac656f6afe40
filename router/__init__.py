"""What to do about it: jobs and a price book in, an immutable placement plan out.

Read top down: ``cli`` (edges) -> ``wiring`` (picks the concrete parts) -> ``files`` (disk)
-> ``planning`` (the pure core, and the one module that calls a solver) -> ``jobs`` (what was asked).
"""
