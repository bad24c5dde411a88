"""Verbs that deploy, show and call Models."""
