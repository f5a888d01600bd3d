"""What differs by whole messages and tools: examples, histories, tool lists, shared text behind what is not shared."""
