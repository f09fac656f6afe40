"""Azure: prices from the public Retail Prices API, zones and restrictions from the subscription's SKUs."""
