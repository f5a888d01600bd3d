"""Which thresholds were breached, when, by whom, and what explains it. Rules are data: `rules/`."""
