"""The activator: hold requests of revisions without capacity, and forward them when there is capacity.

It is a process of its own (`python -m clusters.embedded.activator`), so that requests survive a restart of the control
plane. The control plane sends it the endpoints of each revision and receives the loads, over one Unix socket
(`clusters.embedded.activator.link`).
"""
