"""Rules that make prompts which mean the same the same. Pure: they also run in the rewriter that --apply writes."""
