"""The activator's request path: callers' connections, headers, connections to endpoints, and error responses."""
