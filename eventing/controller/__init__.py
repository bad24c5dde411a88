"""The controllers of ModelEvents and EventSources."""
