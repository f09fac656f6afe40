"""Policies as the watcher asks them, for one job that runs. Pure."""
