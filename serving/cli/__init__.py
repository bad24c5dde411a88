"""The `knodel` command: one file per verb, one thin client, one writer to stdout."""
