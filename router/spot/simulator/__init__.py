"""Simulator of jobs on spot availability traces: inputs, the views a policy gets, its requests, and outcomes. Pure."""
