"""The verbs of the `knodel` command, one module each, in packages by section of `knodel --help`."""
