"""FOCUS, the FinOps Open Cost and Usage Specification: a charge as a value, its columns by version, files of charges.

Files are opened by ``feed``, ``reading`` and ``writing`` alone.
"""
