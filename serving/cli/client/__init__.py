"""The command's client of an API server, ours or a real one."""
