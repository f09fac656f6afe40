"""Compute a placement plan from jobs, a price book and limits.

Rooms in the order in which data flow: ``find`` (offers that fit a job, priced and timed) -> ``problem`` (jobs, slots,
limits and holdings) -> ``document`` (the plan as a value, its money and its JSON) -> ``program`` (the mixed-integer
program and its solver) -> ``columns`` (many jobs by columns) -> ``improve`` (stays, late jobs, early starts) ->
``explain`` (runner-ups, relaxations, worths, changes) -> ``planner``, the pipeline. ``estimate`` and ``what_if`` ask it
about gangs and about other inputs. A room imports only those before it.
"""
