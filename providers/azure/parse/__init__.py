"""Parsers of Azure's answers into ``pricing`` and ``providers`` values. Pure: plain data in, values out."""
