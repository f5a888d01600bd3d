"""What rewrites would save: tokens by replay through the block rules, milliseconds by the twin."""
