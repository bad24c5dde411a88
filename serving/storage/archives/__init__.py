"""Tar and zip archives, read from senders that are not trusted."""
