"""CloudEvents in and out: the webhook, its ledger, and the events that report rollouts. It imports `clusters` only."""
