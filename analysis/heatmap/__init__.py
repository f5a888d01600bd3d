"""Where in the prompts caches are read: reuse, volatility, stability of responses and cost by position."""
