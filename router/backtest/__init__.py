"""Back-tests: policies over windows of recorded availability, side by side. Pure."""
