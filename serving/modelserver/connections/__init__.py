"""Callers' connections: HTTP/1.1 framing, limits, write backpressure, sockets."""
