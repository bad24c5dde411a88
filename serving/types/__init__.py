"""Kinds of Knodel as tables of fields, read as checked values."""
