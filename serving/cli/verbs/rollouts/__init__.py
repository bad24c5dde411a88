"""Verbs to shift traffic between the versions of a Model."""
