"""The values that the pages show, from objects. Pure."""
