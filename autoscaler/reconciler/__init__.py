"""Passes over PodAutoscalers: scale, digest records, status, scale to zero."""
