"""Verbs to start, stop, install, check and configure the platform."""
