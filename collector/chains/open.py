"""Puts together what makes the chains of one server, from what is known of it and what a person set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cachemodel.content import ContentHasher
from collector.chains.approximate import Approximation
from collector.chains.capture import Texts
from collector.chains.memory import ChainMemory
from collector.chains.prompt_log import Known, PromptLog
from collector.chains.row import ChainMaker
from collector.chains.server import Adapters, ServerTokenizer
from collector.chains.settings import APPROXIMATE, OFF, SERVER, Capture, ChainSettings
from collector.chains.source import ChainTail, Tokens
from collector.chains.tokens import CACHE_BYTES, Tokenizer
from collector.chains.waiting import MAX_CHARACTERS
from collector.detection import Detection
from collector.otlp.check import DEFAULT_WINDOW, Window
from collector.sink import Sink

BLOCK_SIZE, SMALLEST_BLOCK = 16, 8  # tokens
LIBRARY_BYTES = 64 << 20  # a large tokenizer
MEMORY_BYTES = 4 * MAX_CHARACTERS + CACHE_BYTES + LIBRARY_BYTES
"""What one server's chains take at most, beside the memory of prompts that all share."""
_FACTS = ("block_size", "page_size", "kv_cache_block_tokens_per")


def block_size(facts: Mapping[str, str]) -> tuple[int, str]:
    """Tokens of a block by what a server says of its cache, and what is to be said of that choice.

    A chain in blocks of a token or two would be larger than its prompt: it gets larger ones, and its blocks are not
    those of the server's events then.
    """
    told = next((facts[name] for name in _FACTS if facts.get(name, "").isdigit()), "")
    if not told:
        return BLOCK_SIZE, f"in blocks of {BLOCK_SIZE}, the server does not tell its own (--block-size)"
    if int(told) < SMALLEST_BLOCK:
        return (
            BLOCK_SIZE,
            f"in blocks of {BLOCK_SIZE}, the server's of {told} are too many: its KV events do not match",
        )
    return int(told), ""


def open_chains(
    log: Path,
    server: str,
    sink: Sink,
    hasher: ContentHasher,
    memory: ChainMemory,
    *,
    detection: Detection,
    settings: ChainSettings,
    known: Known | None = None,
    token: str = "",
    window: Window = DEFAULT_WINDOW,
) -> ChainTail | None:
    """The source of a server's chains; None where a person wants none, and no texts either.

    token: that the server wants. Raises UserError for a tokenizer that cannot be read.
    """
    if settings.tokenizer == OFF and settings.capture is Capture.HASHES:
        return None
    given = settings.tokens_a_block
    size, remark = (given, "") if given else block_size(detection.facts)
    tells_adapters = detection.kind == "vllm"  # in whose list of models they name their parent
    return ChainTail(
        PromptLog(log, server, window, known),
        server,
        sink,
        ChainMaker(hasher, memory, size),
        Texts(settings.capture, hasher),
        Tokens(
            _tokenizer(settings.tokenizer, detection, token),
            Adapters(detection.url, token) if tells_adapters else None,
        ),
        remark=remark,
    )


def _tokenizer(wanted: str, detection: Detection, token: str) -> Tokenizer | None:
    if wanted == OFF:
        return None
    if wanted == APPROXIMATE:
        return Approximation()
    if wanted in ("", SERVER):
        return ServerTokenizer(detection.url, token, llama_cpp=detection.kind == "llama_cpp")
    from collector.chains.local import read_tokenizer  # the library takes its time to load

    return read_tokenizer(Path(wanted).expanduser())
