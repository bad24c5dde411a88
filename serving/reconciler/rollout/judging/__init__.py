"""The judge of a rollout: what revisions answered, and whether the canary is good enough."""
