"""Placement router for GPU training jobs: prices, plans, quotes, machines and the ledger.

Rooms, from the top: ``cli`` reads commands and ``app`` builds each one's parts; ``controller``, ``coordinator``,
``quotes``, ``spot`` and ``showback`` do the work; ``planning`` solves the placement program over ``jobs``; ``state``
stores what happened and ``ledger`` what it cost. ``agent`` runs on each machine and imports no other room.
``api`` is the library for Python programs. ``docs/rooms.svg`` draws which room imports which.
"""


def installed_version() -> str:
    """Return the version of this program, "" where it runs without being installed."""
    from importlib.metadata import PackageNotFoundError, version  # takes a while, and agents need none of it

    try:
        return version("stepfare")
    except PackageNotFoundError:
        return ""
