"""Spot availability: hazard models learned from the past, their uncertainty, and whether they held. Pure."""
