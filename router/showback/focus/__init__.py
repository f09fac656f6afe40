"""Model FOCUS, the FinOps Open Cost and Usage Specification: charges, columns by version, and files of charges.

Only ``feed`` and ``charge_files`` open files.
"""
