"""The command line: read the arguments, call one function, render, return an exit code."""
