"""HTTP endpoints of the data port (inference) and of the management port (platform)."""
