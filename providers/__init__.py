"""Where offers come from: one adapter a cloud, each turning an SDK's answers into ``pricing`` values.

Knows ``pricing`` only; neither ``router`` nor ``terraform``.
"""
