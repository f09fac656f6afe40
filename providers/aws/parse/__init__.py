"""Parsers of the answers of EC2 and its price lists: pure, one module a subject."""
