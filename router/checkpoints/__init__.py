"""Checkpoints on durable storage: uploading, downloading, and copying from region to region.

A checkpoint is defined by the contract of docs/checkpoints.md: files, and a manifest that is written last. One module,
``arrow_store``, talks to object stores.
"""
