"""The detectors of all dialects, in the order in which they are asked.

A server that wraps another (Dynamo) shows the other's metrics too, so that it is asked first; before
any detector that reads /metrics comes TensorRT-LLM's, where reading it takes away what it holds.
"""

from __future__ import annotations

from cachemodel.errors import UserError
from collector.detection import Detection, Detector, Probe
from collector.dialects.dynamo.detect import detect as detect_dynamo
from collector.dialects.engine.detect import detect as detect_engine
from collector.dialects.llama_cpp.detect import detect as detect_llama_cpp
from collector.dialects.lmcache.detect import beside
from collector.dialects.lmcache.detect import detect as detect_lmcache
from collector.dialects.sglang.detect import detect as detect_sglang
from collector.dialects.triton.detect import detect as detect_triton
from collector.dialects.trtllm.detect import detect as detect_trtllm
from collector.dialects.vllm.detect import detect as detect_vllm

DETECTORS: tuple[Detector, ...] = (
    detect_trtllm,
    beside(detect_dynamo),
    beside(detect_sglang),
    beside(detect_vllm),
    detect_engine,
    detect_llama_cpp,
    detect_triton,
    detect_lmcache,
)
KNOWN = "vLLM, SGLang, llama.cpp, TensorRT-LLM, Triton, Dynamo, LMCache, hitmap's engine"
"""Names of the servers, for messages."""


def recognise(probe: Probe, otlp: str) -> Detection | None:
    """What is behind a probe; None where no dialect knows it. Raises UserError, whatever the server answers."""
    for detector in DETECTORS:
        try:
            detection = detector(probe, otlp)
        except UserError:
            raise
        except (
            Exception
        ) as error:  # an answer that nobody thought of must not end a collector that watches others
            raise UserError(
                f"{probe.url} answers what no such server should ({type(error).__name__}: {str(error)[:200]})"
            ) from error
        if detection:
            return detection
    return None
