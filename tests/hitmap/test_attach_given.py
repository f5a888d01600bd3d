"""What `hitmap attach` says of a signal once the file that tells it was given."""

from __future__ import annotations

from pathlib import Path

from collector.attach import detect
from collector.detection import Capability, Detection
from hitmap.commands.attach import given
from tests.collector.support import Server, text

LOG = Path("requests.jsonl")


def of(detection: Detection, signal: str) -> Capability:
    (found,) = (capability for capability in detection.capabilities if capability.signal == signal)
    return found


def test_a_log_that_was_given_is_not_asked_for() -> None:
    metrics = 'vllm:cache_config_info{block_size="32"} 1\n'
    with Server({"/metrics": text(metrics), "/v1/models": text("{}")}) as server:
        plain = detect(server.url)
    cached = of(plain, "cached tokens by request")
    assert cached.evidence.endswith("in the usage of responses, which this cannot see")
    told = of(given(plain, {"--log": LOG, "--server-log": None}), "cached tokens by request")
    assert told.evidence.endswith("in the usage of responses, read from requests.jsonl")
    assert told.flag == "--enable-prompt-tokens-details"  # without it the usage has none
    gone = of(given(plain, {"--log": LOG}), "requests the client gave up")
    assert gone.flag == ""
    steps = of(given(plain, {"--log": LOG}), "tokens and time of each step")
    assert steps == of(plain, "tokens and time of each step")
    steps = of(given(plain, {"--server-log": Path("vllm.log")}), "tokens and time of each step")
    assert steps.flag == "--enable-logging-iteration-details"
    assert "read from vllm.log" in steps.evidence
    assert given(plain, {"--log": None, "--server-log": None}) == plain
