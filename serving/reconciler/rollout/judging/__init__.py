"""The judge of a rollout: what revisions answered, and whether the candidate is good enough."""
