"""`knodel dev`: serve a model while its files are edited, and reload it after each save."""
