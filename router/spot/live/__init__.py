"""Policies of one running job, as the supervisor asks them. Pure."""
