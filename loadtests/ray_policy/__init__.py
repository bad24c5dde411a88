"""Knodel's policy beside Ray Serve's own, in one Ray, under the same load: `python -m loadtests.ray_policy`."""
