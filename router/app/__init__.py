"""Compose the parts that a command needs: read its inputs and put them together."""
