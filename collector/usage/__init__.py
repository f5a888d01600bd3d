"""What responses say of themselves: one module for each style, each one table. Pure.

A style is how one API or server words its usage. `read` brings all of them into one form, in which the prompt includes
its cached part and what is not said stays unknown: no cached count is not a count of 0.
"""

from __future__ import annotations

from collector.usage import (
    anthropic,
    bedrock,
    deepseek,
    gateway,
    gemini,
    langfuse,
    llama_cpp,
    openai_chat,
    openai_responses,
    sglang,
    vllm,
)
from collector.usage.style import Found, Record

# What a server adds in words of its own; its counts of tokens come before those in the words of an API.
SERVERS = (llama_cpp.STYLE, vllm.STYLE, sglang.STYLE)
# A response is worded as one API has it, the first that applies: some give the same names different meanings.
APIS = (
    *(langfuse.STYLE, gemini.STYLE, bedrock.STYLE, deepseek.STYLE, gateway.STYLE, anthropic.STYLE),
    *(openai_chat.STYLE, openai_responses.STYLE),
)


def read(response: Record) -> Found:
    """What a response says of its tokens and times: the fields of Usage that it tells."""
    found: Found = {}
    for style in SERVERS:
        if style.applies(response):
            style.fill(found, response)
    for style in APIS:
        if style.applies(response):
            style.fill(found, response)
            break
    return found
