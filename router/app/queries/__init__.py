"""Answer what people ask of plans, jobs, quotes, prices and books, each within what they may see.

The command line and the console ask the same functions; only here are rows left out for who asks.
"""
