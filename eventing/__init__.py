"""CloudEvents in and out: the webhook, its ledger, and the events by which rollouts answer.

It knows `clusters` alone. So far only the webhook's door stands (`main.py`), and it lets nobody in.
"""
