"""Errors, output and tables of the command."""
