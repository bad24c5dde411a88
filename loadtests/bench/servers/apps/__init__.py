"""Measured programs. Those in a peer's environment import nothing of Knodel."""
