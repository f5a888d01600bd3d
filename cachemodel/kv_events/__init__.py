"""KV-cache events: what happened to which blocks, and the codecs of those who tell of it.

vLLM, SGLang, TensorRT-LLM (push)   msgpack batches over ZeroMQ    zmq_batch.py
TensorRT-LLM (pull)                 drained JSON lists             trtllm.py
Dynamo's event plane                msgpack or JSON, by worker     dynamo.py
"""

from __future__ import annotations

from cachemodel.kv_events.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    BlockUpdated,
    CacheCreated,
    DecodeError,
    Event,
    KVEventBatch,
    UnknownEvent,
)
from cachemodel.kv_events.zmq_batch import decode_batch, encode_batch

__all__ = [
    "AllBlocksCleared",
    "BlockRemoved",
    "BlockStored",
    "BlockUpdated",
    "CacheCreated",
    "DecodeError",
    "Event",
    "KVEventBatch",
    "UnknownEvent",
    "decode_batch",
    "encode_batch",
]
