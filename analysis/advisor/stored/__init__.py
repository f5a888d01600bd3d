"""Prompts, what is known beside them, and what people decided, from a store."""
