"""The event webhook: HTTP in, ModelEvents out."""
