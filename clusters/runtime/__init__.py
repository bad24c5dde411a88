"""What controllers are made of: informers, work queues, leases, Event recorders, and the controller manager."""
