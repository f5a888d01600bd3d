"""Where the prompts of one template differ and why, from the prompts alone."""
