"""Layers as data: a chain of caches that is not an LLM server, described in YAML and attributed from its spans."""
