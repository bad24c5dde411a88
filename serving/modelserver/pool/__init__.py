"""Members of a warm pool: the work before a claim, and the claim itself."""
