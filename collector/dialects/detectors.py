"""The detectors of all dialects, in the order in which they are asked.

A server that wraps another (Dynamo, LMCache) shows the other's metrics too, so that it is asked first.
"""

from __future__ import annotations

from collector.detection import Detector
from collector.dialects.vllm.detect import detect as detect_vllm

DETECTORS: tuple[Detector, ...] = (detect_vllm,)
KNOWN = "vLLM"
"""Names of the servers, for messages."""
