"""`knodel events`."""
