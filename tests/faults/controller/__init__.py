"""Faults of the control plane: rows K of the catalogue."""
