"""Programs that are measured: what runs in a peer's environment imports nothing of Knodel."""
