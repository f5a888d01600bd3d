"""Requests that ended, made without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import FinishReason, Request, Sampling, TokenSources
from engine.timeline import Timeline

START_NS = 1_795_953_914_000_000_000
PASSED = ("frontend", "queue", "prefix", "host", "remote", "prefill", "prefill", "decode", "other")


def request(
    request_id: str = "chatcmpl-1", passed: Sequence[tuple[str, int]] = (), **told: object
) -> Request:
    """A request that passed these layers, nanoseconds each; by default each once, prefill twice, 10 ms and more."""
    passed = passed or [(layer, (10 + number) * 1_000_000) for number, layer in enumerate(PASSED)]
    at = START_NS
    timeline = Timeline(passed[0][0], at)
    for number, (layer, length) in enumerate(passed):
        if number:
            timeline.enter(layer, at, tokens=number)
        at += length
    timeline.close(at)
    made = Request(request_id, list(range(100)), Sampling(max_tokens=7), timeline)
    made.model, made.finish_reason = "demo", FinishReason.LENGTH
    made.output = [1] * 7
    made.sources = TokenSources(device=32, host=16, remote=16, computed=36)
    made.block_hashes = [2**64 - 1, 5, 6]
    decode = next((part for part in timeline.intervals if part.layer == "decode"), None)
    made.first_token_ns = decode.start_ns if decode else 0
    for name, value in told.items():
        setattr(made, name, value)
    return made
