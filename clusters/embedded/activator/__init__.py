"""The activator: holds the requests of revisions without capacity, and passes them on as capacity comes.

A process of its own (`python -m clusters.embedded.activator`), so that requests outlive the control plane. The control
plane tells it where each revision's endpoints are, and is told of waiting requests, over one unix socket
(`clusters.embedded.activator.link`).
"""
