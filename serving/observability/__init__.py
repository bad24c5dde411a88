"""Prometheus metrics of Models, warm pools and events, and the configuration of a Prometheus on one machine."""
