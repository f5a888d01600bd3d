"""What keeps prompts from the cache that no sender wrote: options, isolation, rendering, retokenised replies."""
