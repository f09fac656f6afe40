"""Improve a solved plan: jobs that stay, late jobs, split jobs, early starts, preemption."""
