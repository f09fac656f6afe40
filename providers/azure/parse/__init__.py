"""What Azure answers, read into ``pricing`` and ``providers`` values. Pure: plain data in, values out."""
