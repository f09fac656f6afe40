"""Published policies, to compare ours with, and their adapter to zones that have to be asked. Pure."""
