"""Who somebody is, and what they may see and do. Pure values; nothing here reads a token or a file."""
