"""The HTTP endpoints of the data port and of the management port."""
