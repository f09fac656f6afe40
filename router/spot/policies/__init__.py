"""Policies that decide about a gang at each tick: published ones, ours, and the lower bound on cost. Pure."""
