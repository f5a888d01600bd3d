"""Spans of Langfuse's SDK: generations, with their usage as JSON in one attribute."""
