"""Command line: each command reads its arguments, calls one function, renders the result and returns an exit code."""
