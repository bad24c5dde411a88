"""Warm pools: claims of members, and how many members a pool has."""
