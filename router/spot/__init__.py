"""Spot availability, the policies that decide about spot machines, and the simulator that scores them.

``simulator`` (jobs played against availability traces) <- ``availability`` (hazard models of spot) <- ``policies`` <-
``live`` (policies for a job that runs). The quotes and the back-test are built on them (:mod:`router.quotes`,
:mod:`router.backtest`).

Layer: above planning; pure, no I/O.
"""
