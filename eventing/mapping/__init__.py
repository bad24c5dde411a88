"""How foreign events become changes of Models: presets, paths, templates. Pure."""
