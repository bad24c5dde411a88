"""Every door of the platform under bad input: who is refused how, and that nothing is changed by it."""
