"""Small real servers on loopback, one module for each kind, made from recordings or from the atlas.

`STUBS` lists them all: each must be recognised as its kind, and by no detector of another kind but those of `shows`,
the servers whose metrics it passes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.collector.servers import dynamo, engine, llama_cpp, lmcache, sglang, triton, trtllm, vllm
from tests.collector.support import Server


class Stub(NamedTuple):
    """A server: how a test is called, the kind that is to be recognised, how to make one."""

    name: str
    kind: str
    make: Callable[[], Server]
    shows: tuple[str, ...] = ()


STUBS = (
    Stub("vLLM", "vllm", vllm.recorded),
    Stub("vLLM with an offload tier", "vllm", vllm.offloading),
    Stub("vLLM, V0", "vllm", vllm.v0),
    Stub("llama.cpp", "llama_cpp", llama_cpp.new),
    Stub("llama.cpp, nothing switched on", "llama_cpp", llama_cpp.bare),
    Stub("llama.cpp, old", "llama_cpp", llama_cpp.old),
    Stub("llama.cpp, a router", "llama_cpp", llama_cpp.router),
    Stub("TensorRT-LLM", "trtllm", trtllm.new),
    Stub("TensorRT-LLM, nothing switched on", "trtllm", trtllm.bare),
    Stub("TensorRT-LLM, old", "trtllm", trtllm.old),
    Stub("Triton", "triton", triton.new),
    Stub("Triton, old", "triton", triton.old),
    Stub("Triton's API", "triton", triton.api),
    Stub("SGLang", "sglang", sglang.new),
    Stub("SGLang, nothing switched on", "sglang", sglang.bare),
    Stub("SGLang, old", "sglang", sglang.old),
    Stub("Dynamo's front end", "dynamo", dynamo.frontend),
    Stub("Dynamo's front end, old", "dynamo", dynamo.frontend_old),
    Stub("a Dynamo worker with vLLM", "dynamo", dynamo.worker, shows=("vllm",)),
    Stub("an old Dynamo worker with SGLang", "dynamo", dynamo.worker_sglang, shows=("sglang",)),
    Stub("Dynamo's KVBM", "dynamo", dynamo.kvbm),
    Stub("the engine", "engine", engine.new),
    Stub("the engine, nothing switched on", "engine", engine.bare),
    Stub("LMCache's server", "lmcache", lmcache.server),
    Stub("LMCache's server, metrics elsewhere", "lmcache", lmcache.api),
    Stub("LMCache in vLLM", "vllm", lmcache.in_vllm),
)
