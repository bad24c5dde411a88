"""Requests and answers as bytes: the inference protocols v1, v2 and generate, CloudEvents, compression."""
