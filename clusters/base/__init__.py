"""Values and pure rules for every package: objects, errors, the `Cluster` protocol, time and quantities."""
