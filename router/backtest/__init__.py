"""Policies over windows of recorded weather, side by side. Pure."""
