"""Folders of other model servers and registries: which files are the model, and what their description sets."""
