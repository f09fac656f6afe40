"""A cloud that is a script: stock, prices and notices over time, for trying things out and for tests.

It is an adapter like any other, with the same rules; and it remembers how it was called.
"""
