"""From jobs, a price book and limits to a plan.

In the order in which data flows: ``market`` (what is for sale to us) -> ``sieve`` and ``candidates`` (what fits a
job, priced and timed) -> ``dominance`` -> ``slots``, ``shared`` (limits), ``transfers`` -> ``program`` (the
mixed-integer program
as data) -> ``solver`` (the one module that knows PuLP) -> ``schedule`` (whole runs) -> ``costing`` (exact
money) -> ``plan``. ``planner`` is the pipeline; ``alternatives``, ``relaxations`` and ``worth`` say why.
"""
