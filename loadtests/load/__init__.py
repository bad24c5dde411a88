"""Load tests of a platform, with a report as one HTML page: `make load` and `make soak`."""
