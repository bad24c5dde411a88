"""The settings of a platform and where its state lies."""
