"""The activator holds requests of revisions without capacity, and forwards them when there is capacity.

It is a process of its own (`python -m clusters.embedded.activator`), so that requests survive the control plane. The
control plane sends it the endpoints of each revision and receives the queue depths, over one Unix socket
(`clusters.embedded.activator.link`).
"""
