"""Verbs for the platform itself: start, stop, install, examine, configure."""
