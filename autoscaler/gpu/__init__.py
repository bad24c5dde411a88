"""GPUs of the nodes: how many there are, who holds them, and which nodes could be drained."""
