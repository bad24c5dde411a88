"""Members of a warm pool: what they prepare before a claim, and the claim."""
