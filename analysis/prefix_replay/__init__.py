"""What a server's own cache would serve of prompts: `replay.replay` and the rules in `rules`."""
