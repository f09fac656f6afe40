"""The node agent: starts the training process of one rank, says how it goes, stops it when told.

Standard library alone, and nothing newer than Python 3.9: it is packed as a zipapp (``router.controller.zipapp``) and
runs
on whatever interpreter a machine image brings. What it says to whom is ``docs/design/011-node-agent.md``.
"""
