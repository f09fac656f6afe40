"""Upgrades of databases of earlier versions: alembic runs env.py and the steps in versions/."""
