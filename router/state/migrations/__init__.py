"""How a database of an earlier version becomes one of this version: alembic runs env.py and the steps in versions/."""
