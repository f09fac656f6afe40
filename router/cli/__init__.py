"""Command line: each command reads its arguments, calls one function, renders the result and returns an exit code."""

import os

# Before numpy is imported. The last bits of a fit depend on the number of threads, so that quotes would differ between
# machines; and several threads for small products wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # noqa: TID251  this module is the edge
