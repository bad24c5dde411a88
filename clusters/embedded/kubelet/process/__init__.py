"""Containers as processes: images, environment, resource limits, volumes, and zygotes to fork from."""
