"""Adapters of clouds: each turns the answers of one cloud's SDK into ``pricing`` values.

Knows ``pricing`` only; neither ``router`` nor ``terraform``.
"""
