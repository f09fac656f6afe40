"""Smaller clouds, read from price catalogues that anyone may read: those that ``gpuhunt`` publishes, and one market.

No account is used. ``clouds.json`` says by which name and with which limits each cloud is found there.
"""
