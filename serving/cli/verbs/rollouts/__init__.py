"""Verbs that move traffic between the versions of a Model."""
