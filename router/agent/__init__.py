"""The node agent starts the training process of one rank, reports its state and stops it on order.

It uses the standard library alone and nothing newer than Python 3.9: it is packed as a zipapp
(``router.controller.workspace.bootstrap``) and runs on whatever interpreter a machine image brings. Its messages are
described in ``docs/design/agent-and-coordinator.md``.
"""
