"""Metrics, access log, traces and payload log of a model server."""
