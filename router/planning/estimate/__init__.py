"""Estimate what a step of a job costs on several gangs, without a plan."""
