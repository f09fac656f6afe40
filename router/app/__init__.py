"""The composition roots: what a command needs, read and put together."""
