"""Values and pure rules that every package uses: objects, errors, the `Cluster` protocol, time, quantities."""
