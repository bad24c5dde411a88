"""Releases: reproducible distributions, checks in clean environments, and the files that a release publishes."""
