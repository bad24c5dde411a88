"""How many members a warm pool keeps: arrivals, keep-alive policy, shortage. Pure but for the keeper."""
