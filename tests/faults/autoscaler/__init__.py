"""What the autoscaler survives on a real platform."""
