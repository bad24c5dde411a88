"""Containers as processes: images, environment, limits, mounts, and zygotes to fork from."""
