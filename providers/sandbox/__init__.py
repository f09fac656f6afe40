"""Scripted cloud: stock, prices and notices over time come from a script, for trials and for tests.

It is an adapter like any other, with the same rules.
"""
