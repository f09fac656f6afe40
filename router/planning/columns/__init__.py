"""Plan many jobs by columns: each column is a whole schedule of one job.

Data flow: ``table`` (all candidates as arrays) -> ``runs`` and ``paths`` (the best schedules of all jobs at given
prices of limits) -> ``column`` (a schedule with its cost and its use) -> ``master`` (the linear program over the
columns found, whose duals are the next prices) -> ``dive``, ``neighbourhoods`` (whole plans) -> ``search`` (rounds,
stages and the bound).
"""
