"""Shared vocabulary of prices: money, places, machines, offers and the price book.

This is the bottom package: it imports none of the others. Only ``book_file`` touches the disk.
"""
