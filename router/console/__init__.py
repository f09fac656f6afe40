"""The console: pages and an HTTP API over the same queries as the command line."""
