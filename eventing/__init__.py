"""Receives and sends CloudEvents: the webhook, its ledger, and the events about rollouts. Imports only `clusters`."""
