"""CloudEvents in and out: the webhook, its ledger, and the events by which rollouts answer.

The package stands here for its import contract (it knows `clusters` alone); it holds no code yet.
"""
