"""Deciding under way: what to do with a gang when the weather turns, and what that is expected to cost.

Layer: above planning; pure, no I/O.
"""
