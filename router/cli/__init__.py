"""Command line: each command reads its arguments, calls one function, renders the result and returns an exit code."""

from router.cli.numeric_kernels import fix_numeric_kernels

fix_numeric_kernels()  # before any command imports numpy
