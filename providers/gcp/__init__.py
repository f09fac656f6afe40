"""Google Cloud: machine types and prices of Compute Engine, quotas, reservations, advice on Spot capacity."""
