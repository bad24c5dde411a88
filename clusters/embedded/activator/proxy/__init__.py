"""The activator's request path: callers' connections, headers, endpoints' connections, answers."""
