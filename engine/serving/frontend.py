"""What every door does between a caller and the core, in no protocol's words.

A call is one or more prompts with the same options. Each becomes a Request whose timeline begins when the call came and
is closed when its last byte was handed over, once, whatever happens in between: `Call.close` says so to the engine when
the core has let go of the request, and has it aborted before where nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from engine.clock import now_ns
from engine.errors import EngineFailed, NotFound
from engine.faults import Faults
from engine.request import FinishReason, Output, Request, Sampling
from engine.serving.text import StopWatch, TextStream
from engine.timeline import Timeline

if TYPE_CHECKING:
    from engine.core import Engine

MESSAGE_BYTES = 1 << 20  # of a request, and for each token of the longest prompt:
MESSAGE_BYTES_A_TOKEN = 32
LONG_TEXT = 16_384  # characters; tokenising more would hold up the event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What holds for every prompt of a call. arrived_ns: Unix nanoseconds; salt, cache_key, reads_off, reports_reuse,
    traceparent, tracestate: as in Request. max_tokens: None for as many as the model's length leaves."""

    request_id: str
    arrived_ns: int
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    salt: str = ""
    cache_key: str = ""
    reads_off: bool = False
    reports_reuse: bool = False
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a step added to the answer to prompt `index`. finish_reason: with the last one only."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


class Prompt(NamedTuple):
    """token_ids, and the text that they were made of where there was one."""

    token_ids: list[int]
    text: str = ""


class Frontend:
    """The way to `engine`; used on one event loop."""

    def __init__(self, engine: Engine, faults: Faults) -> None:
        self.engine = engine
        self.tokenizer = engine.tokenizer
        self.model: str = engine.config.served_model_name or engine.config.model
        self.max_model_len: int = engine.config.max_model_len
        self.message_bytes = MESSAGE_BYTES + MESSAGE_BYTES_A_TOKEN * self.max_model_len
        self._faults = faults
        self.active: set[str] = set()  # ids in use

    def check_model(self, name: str) -> None:
        """Raises NotFound where it is not ours; no name is any model."""
        if name not in ("", self.model):
            raise NotFound(
                f"The model `{name}` does not exist; this server has `{self.model}`.",
                code="model_not_found",
                param="model",
            )

    async def encode(self, text: str, *, add_special_tokens: bool) -> Prompt:
        """Tokenise, as Tokenizer.encode; off the event loop where that takes a while."""
        encode = partial(self.tokenizer.encode, text, add_special_tokens=add_special_tokens)
        return Prompt(await asyncio.to_thread(encode) if len(text) > LONG_TEXT else encode(), text)

    async def submit(self, prompts: Sequence[Prompt], options: Options) -> Call:
        """Hand prompts to the core. Raises RequestError where one cannot be served; then none is."""
        ids = self._claim(options.request_id, len(prompts))
        call = Call(self, self._faults)
        try:
            for request_id, prompt in zip(ids, prompts, strict=True):
                request = self._request(prompt, request_id, options)
                await call.wait("frontend", request)
                call.submit(request, options.stop)
        except BaseException:
            self.active.difference_update(ids[len(call.requests) :])
            call.close()
            raise
        return call

    def _request(self, prompt: Prompt, request_id: str, options: Options) -> Request:
        return Request(
            request_id=request_id,
            prompt=prompt.token_ids,
            sampling=Sampling(
                max_tokens=options.max_tokens or self._room(len(prompt.token_ids)),
                temperature=options.temperature,
                top_p=options.top_p,
                top_k=options.top_k,
                seed=options.seed,
                ignore_eos=options.ignore_eos,
            ),
            timeline=Timeline("frontend", options.arrived_ns),
            model=self.model,
            salt=options.salt,
            traceparent=options.traceparent,
            tracestate=options.tracestate,
            cache_key=options.cache_key,
            reads_off=options.reads_off,
            reports_reuse=options.reports_reuse,
            stops=StopWatch(self.tokenizer.detokenizer(), options.stop) if options.stop else None,
            prompt_text=prompt.text,
        )

    def _room(self, prompt: int) -> int:
        """Tokens that can be generated after a prompt; 1 where there is no room, for the engine to refuse."""
        config = self.engine.config
        blocks = self._faults.device_blocks() or config.device_blocks
        pool = min(blocks, config.device_blocks) * config.block_size + 1  # the last token needs no KV
        return max(1, min(config.max_model_len, pool) - prompt)

    def _claim(self, wanted: str, count: int) -> list[str]:
        """Ids for the requests of a call. Others than wanted where a client sends one again while it is in use."""
        name = wanted
        while True:
            ids = [f"{name}-{index}" for index in range(count)] if count > 1 else [name]
            if self.active.isdisjoint(ids):
                self.active.update(ids)
                return ids
            name = f"{wanted}-{secrets.token_hex(4)}"


class Call:
    """Prompts that are being answered. Whoever has one closes it when the last byte was handed over, or earlier."""

    def __init__(self, frontend: Frontend, faults: Faults) -> None:
        self.requests: list[Request] = []
        self._frontend = frontend
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        # No more can be in it than tokens were asked for.
        self._outputs: asyncio.Queue[tuple[int, Output] | None] = asyncio.Queue()
        self._streams: list[TextStream] = []
        self._texts: list[list[str]] = []
        self._held: set[int] = set()  # the requests that the core still writes
        self._closed = False

    def submit(self, request: Request, stop: Sequence[str]) -> None:
        """Add one. Raises RequestError."""
        index = len(self.requests)

        def sink(output: Output) -> None:
            try:
                self._loop.call_soon_threadsafe(self._take, index, output)
            except RuntimeError:  # the loop is closed: the server has ended
                if output.finish_reason is not None:
                    self._frontend.engine.finished(request)

        self._frontend.engine.submit(request, sink)
        self._held.add(index)
        self.requests.append(request)
        self._streams.append(TextStream(self._frontend.tokenizer.detokenizer(), stop))
        self._texts.append([])

    async def pieces(self) -> AsyncIterator[Piece]:
        """What is generated, as it comes; ends early after `abandon`. Raises EngineFailed where the engine did."""
        left = len(self.requests)
        while left and (item := await self._outputs.get()):
            index, output = item
            request, reason = output.request, output.finish_reason
            text = self._streams[index].push(output.token_ids)
            if reason is FinishReason.ERROR:
                raise EngineFailed(f"The engine failed: {request.error}")
            if reason is FinishReason.ABORT:
                raise EngineFailed("The server ended this request: it is stopping.")
            if reason is not None:
                text += self._streams[index].finish()
                left -= 1
                await self.wait("other", request)
            self._texts[index].append(text)
            yield Piece(index, text, output.token_ids, reason)

    async def wait(self, layer: str, request: Request) -> None:
        """Wait as the faults of a layer have it, and say so on the timeline."""
        fired = self._faults.fire(layer)
        if fired.mark:
            began = now_ns()
            await asyncio.sleep(fired.delay_s)
            request.timeline.note(fault=fired.mark, fault_us=(now_ns() - began) // 1000)

    def abandon(self) -> None:
        """Nobody waits for the answer any more: `pieces` ends, and the core is told when the call is closed."""
        self._outputs.put_nowait(None)

    def close(self) -> None:
        """The last byte was handed over, or nobody waits for it: close the timelines, now or when the core lets go."""
        if self._closed:
            return
        self._closed = True
        for index, request in enumerate(self.requests):
            if index in self._held:
                self._frontend.engine.abort(request.request_id)
            else:
                self._done(index)

    def _take(self, index: int, output: Output) -> None:
        if output.finish_reason is not None:
            self._held.discard(index)
            if self._closed:
                self._done(index)
        if not self._closed:
            self._outputs.put_nowait((index, output))

    def _done(self, index: int) -> None:
        request = self.requests[index]
        request.output_text = "".join(self._texts[index])
        self._frontend.active.discard(request.request_id)
        self._frontend.engine.finished(request)
