"""Which figures that servers tell cannot be true, mean something else, or are missing. Rules are data: `rules/`."""
