"""The `knodel` command: one module per verb, a thin API client, and one class for output."""
