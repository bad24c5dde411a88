"""The rules of a decision, one noun a file; which of them, in which order: `autoscaler.scaling.decider.STAGES`."""
