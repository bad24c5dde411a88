"""What warm pools survive on a real platform."""
