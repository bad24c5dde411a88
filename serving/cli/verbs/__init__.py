"""The verbs of the `knodel` command, one file each, in the sections of `knodel --help`."""
