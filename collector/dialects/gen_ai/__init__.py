"""Anything that follows OpenTelemetry's conventions for generative AI, old or new: mostly clients and gateways."""
