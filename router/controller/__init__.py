"""Run accepted plans: orders, provisioning, supervision and release of gangs.

Rooms in the order in which they build on each other: ``history`` (what happened to attempts and what it cost) ->
``workspace`` (what Terraform and the machines are given) -> ``release`` -> ``provision`` -> ``accept`` -> ``supervise``
-> ``apply`` and ``sweep``; ``report`` tells people.
"""
