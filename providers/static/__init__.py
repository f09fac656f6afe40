"""Own or long-rented machines: hosts in a file, at the price per hour that they amount to."""
