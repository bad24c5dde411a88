"""Verbs of `knodel events`: manage event sources, send and inspect events."""
