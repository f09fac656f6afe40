"""Machines of one's own, or rented for long: hosts in a file, at the price per hour that they amount to."""
