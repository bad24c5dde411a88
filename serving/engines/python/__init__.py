"""Models that are Python code: a class in `model.py`."""
