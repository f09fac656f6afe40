"""What is expected of spot: learned from the past, how sure that is, and whether it held. Pure."""
