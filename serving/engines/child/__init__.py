"""Engines in a separate process."""
