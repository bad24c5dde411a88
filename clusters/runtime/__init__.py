"""The runtime of controllers: informers, work queues, leases, Event recorders, and the controller manager."""
