"""Compute a placement plan from jobs, a price book and limits.

Data flows in this order: ``listings`` (offers as we would buy them) -> ``feasibility`` and ``candidates`` (offers that
fit a job, priced and timed) -> ``dominance`` -> ``problem``, ``shared_limits``, ``transfers`` -> ``program`` (the
mixed-integer program as data) -> ``solver`` (the one module that imports PuLP) -> ``schedule`` (whole runs) ->
``costing`` (exact money) -> ``plan``. ``planner`` is the pipeline; ``alternatives``, ``relaxations`` and
``shadow_prices`` explain its result.
"""
