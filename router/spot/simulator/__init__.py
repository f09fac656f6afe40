"""Jobs played against weather: what they are given, what a policy sees or asks for, what it came to. Pure."""
