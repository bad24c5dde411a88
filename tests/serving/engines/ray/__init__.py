"""Tests of the format ray."""
