"""Checks of `knodel doctor`: the `examine` modules collect facts, the others turn them into findings."""
