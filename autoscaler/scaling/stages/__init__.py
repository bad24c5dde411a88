"""The stages of a decision, one module per theme. Their order: `autoscaler.scaling.decider.STAGES`."""
