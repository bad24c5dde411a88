"""Connections of clients: sockets, HTTP/1.1 framing, limits on slow clients, response writing and compression."""
