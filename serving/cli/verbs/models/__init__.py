"""Verbs to deploy, show and call Models."""
