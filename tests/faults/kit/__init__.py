"""What injects faults, and what looks at the damage."""
