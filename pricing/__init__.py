"""What things cost: the shared vocabulary (money, places, machines, offers, the price book).

The bottom package: it imports none of the others. Only ``bookfile`` touches the disk.
"""
