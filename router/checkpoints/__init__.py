"""Checkpoints on durable storage: copied there by a process of its own, from there to a machine, from region to region.

A checkpoint is what the contract of docs/checkpoints.md says: files, and a manifest that is written last. One module,
``arrow``, speaks to object stores.
"""
