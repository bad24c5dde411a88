"""Events that Knodel emits: the outbox's emitter, the sink, CDEvents and trace spans."""
