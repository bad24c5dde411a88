"""Encoding and decoding of requests and responses: protocols v1, v2 and generate, CloudEvents, compression."""
