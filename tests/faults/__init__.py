"""Faults that the platform survives: a catalogue, and what proves each row."""
