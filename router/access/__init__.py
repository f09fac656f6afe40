"""Identities, their roles and their permissions. Pure values; nothing here reads a token or a file."""
