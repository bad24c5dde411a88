"""The settings of a platform, and its state folder."""
