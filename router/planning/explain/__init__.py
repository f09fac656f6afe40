"""Explain a plan: runner-ups, relaxations, worths of limits, and what changed between two plans."""
