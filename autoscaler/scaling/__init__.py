"""Decisions of the autoscaler as pure stages over arrays."""
