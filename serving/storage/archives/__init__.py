"""Unpack untrusted tar and zip archives."""
