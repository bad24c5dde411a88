"""Rollouts: the table of steps, the traffic split, the bounds of replicas. Pure."""
