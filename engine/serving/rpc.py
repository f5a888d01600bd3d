"""The gRPC door: hitmap.engine.v1.Inference as engine.proto has it, with health and reflection.

Trailing metadata say of each answer `x-request-id`, `cache.key` (the prompt's name in the cache) and `cache.hit`
(cached tokens by tier, as in `device=32,host=16,remote=0`).
"""

from __future__ import annotations

import asyncio
import hmac
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from engine.clock import now_ns
from engine.errors import NotFound, Overloaded, RequestError
from engine.request import FinishReason, Request
from engine.serving import connection, engine_pb2, protocol
from engine.serving.frontend import Call, Frontend, Options, Prompt

SERVICE = engine_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
MOST_CALLS = 4096
_REASONS = {
    FinishReason.STOP: engine_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: engine_pb2.FINISH_REASON_LENGTH,
}
_Context = Any  # grpc.aio.ServicerContext: grpc has no types


class RpcServer:
    """Serves a front end on `address` (host:port, 0 for any port), on the running event loop.

    token: what callers must show as `authorization: Bearer TOKEN`. Raises RuntimeError where it cannot listen.
    """

    def __init__(self, frontend: Frontend, address: str, token: str | None = None) -> None:
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            interceptors=[_Guard(token)] if token else [],
            options=[
                ("grpc.max_receive_message_length", frontend.message_bytes),
                ("grpc.so_reuseport", 0),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 30_000),
            ],
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        self._server.add_generic_rpc_handlers([_handlers(Inference(frontend))])
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        self.port: int = self._server.add_insecure_port(address)

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()
        for name in ("", SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls and give those under way this long."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


class Inference:
    """The service's methods."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend

    async def generate(
        self, asked: engine_pb2.GenerateRequest, context: _Context
    ) -> engine_pb2.GenerateResponse:
        call = await self._submit(asked, context)
        try:
            texts: list[str] = []
            ids: list[int] = []
            reason = FinishReason.ABORT
            async for piece in call.pieces():
                texts.append(piece.text)
                ids.extend(piece.token_ids)
                reason = piece.finish_reason or reason
            request = call.requests[0]
            context.set_trailing_metadata(_trailers(request))
            return engine_pb2.GenerateResponse(
                request_id=request.request_id,
                model=request.model,
                text="".join(texts),
                token_ids=ids,
                finish_reason=_REASONS[reason],
                usage=_usage(request),
            )
        except RequestError as error:
            await _refuse(context, error)

    async def generate_stream(self, asked: engine_pb2.GenerateRequest, context: _Context) -> None:
        """A caller that takes nothing for STALL_S seconds is given up."""
        call = await self._submit(asked, context)
        request = call.requests[0]
        try:
            async for piece in call.pieces():
                chunk = engine_pb2.GenerateChunk(
                    request_id=request.request_id, text=piece.text, token_ids=piece.token_ids
                )
                if piece.finish_reason:
                    chunk.finish_reason = _REASONS[piece.finish_reason]
                    chunk.usage.CopyFrom(_usage(request))
                    context.set_trailing_metadata(_trailers(request))
                if not await _taken(context.write(chunk), call.close):
                    await context.abort(grpc.StatusCode.CANCELLED, "nothing was taken for too long")
        except RequestError as error:
            await _refuse(context, error)

    async def tokenize(
        self, asked: engine_pb2.TokenizeRequest, context: _Context
    ) -> engine_pb2.TokenizeResponse:
        try:
            self._frontend.check_model(asked.model)
            prompt = await self._prompt(asked)
        except RequestError as error:
            await _refuse(context, error)
        return engine_pb2.TokenizeResponse(
            token_ids=prompt.token_ids, max_model_len=self._frontend.max_model_len
        )

    async def _submit(self, asked: engine_pb2.GenerateRequest, context: _Context) -> Call:
        arrived_ns = now_ns()
        try:
            self._frontend.check_model(asked.model)
            options = _options(asked, dict(context.invocation_metadata()), arrived_ns)
            call = await self._frontend.submit([await self._prompt(asked)], options)
        except RequestError as error:
            await _refuse(context, error)
        context.add_done_callback(lambda _: call.close())  # when the last byte was sent, or it was cancelled
        return call

    async def _prompt(self, asked: engine_pb2.GenerateRequest | engine_pb2.TokenizeRequest) -> Prompt:
        kind = asked.WhichOneof("prompt")
        if kind is None:
            raise RequestError("The prompt is missing: set one of the fields of `prompt`.", param="prompt")
        if isinstance(asked, engine_pb2.GenerateRequest) and kind == "tokens":
            return Prompt(list(asked.tokens.ids))
        if kind == "text":
            return await self._frontend.encode(asked.text, add_special_tokens=True)
        messages = [{"role": m.role, "content": m.content} for m in asked.conversation.messages]
        for number, message in enumerate(messages):
            protocol.convert(message, protocol.Message, f"conversation.messages[{number}]")
        if not messages:
            raise RequestError("The conversation has no messages.", param="conversation")
        text = self._frontend.tokenizer.chat_prompt(messages)
        return await self._frontend.encode(text, add_special_tokens=False)


class _Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Lets pass who shows the token."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}"

        async def refuse(asked: Any, context: _Context) -> None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "show 'authorization: Bearer TOKEN'")

        self._refusal = grpc.unary_unary_rpc_method_handler(refuse)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        shown = dict(details.invocation_metadata).get("authorization", "")
        if isinstance(shown, str) and hmac.compare_digest(shown.encode(), self._expected.encode()):
            return await continuation(details)
        return self._refusal


def _handlers(service: Inference) -> Any:
    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    pb = engine_pb2
    methods = (
        ("Generate", unary, service.generate, pb.GenerateRequest, pb.GenerateResponse),
        ("GenerateStream", stream, service.generate_stream, pb.GenerateRequest, pb.GenerateChunk),
        ("Tokenize", unary, service.tokenize, pb.TokenizeRequest, pb.TokenizeResponse),
    )
    handlers = {
        name: kind(_reading(asked, method), None, answer.SerializeToString)
        for name, kind, method, asked, answer in methods
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def _reading(message: Any, method: Callable[[Any, _Context], Awaitable[Any]]) -> Any:
    """The method, for bytes: gRPC itself answers UNKNOWN where they are no message, as if the server had failed."""

    async def read(body: bytes, context: _Context) -> Any:
        try:
            asked = message.FromString(body)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not a {message.DESCRIPTOR.full_name}")
        return await method(asked, context)

    return read


def _options(asked: engine_pb2.GenerateRequest, metadata: dict[str, Any], arrived_ns: int) -> Options:
    """Checked as the HTTP API's parameters are. Raises RequestError."""
    sampling = asked.sampling
    given = {field.name: value for field, value in sampling.ListFields()}
    given |= {"stop": list(asked.stop)} if asked.stop else {}
    given |= {"cache_salt": asked.cache_salt} if asked.cache_salt else {}
    checked = protocol.convert(given, protocol.Generate, "sampling")
    name = asked.request_id or str(metadata.get("x-request-id", "")) or uuid.uuid4().hex
    traceparent, tracestate = protocol.trace_context(metadata)
    return Options(
        request_id=protocol.request_id(name),
        arrived_ns=arrived_ns,
        max_tokens=checked.max_tokens,
        temperature=checked.temperature,
        top_p=checked.top_p,
        top_k=checked.top_k,
        seed=checked.seed,
        ignore_eos=checked.ignore_eos,
        stop=checked.stops,
        salt=checked.cache_salt or "",
        traceparent=traceparent,
        tracestate=tracestate,
    )


def _usage(request: Request) -> engine_pb2.Usage:
    sources = request.sources
    return engine_pb2.Usage(
        prompt_tokens=len(request.prompt),
        completion_tokens=len(request.output),
        device_tokens=sources.device,
        host_tokens=sources.host,
        remote_tokens=sources.remote,
        computed_tokens=sources.computed,
        recomputed_tokens=sources.recomputed,
    )


def _trailers(request: Request) -> tuple[tuple[str, str], ...]:
    sources = request.sources
    key = str(request.block_hashes[-1]) if request.block_hashes else ""  # of the last full block
    hit = f"device={sources.device},host={sources.host},remote={sources.remote}"
    return (("x-request-id", request.request_id), ("cache.key", key), ("cache.hit", hit))


async def _taken(write: Coroutine[Any, Any, None], give_up: Callable[[], None]) -> bool:
    """Whether a message was taken in time. `give_up` is called when it was not, and then it is waited for: gRPC cannot
    end a call whose last message is on its way."""
    writing = asyncio.ensure_future(write)
    try:
        in_time, _ = await asyncio.wait({writing}, timeout=connection.STALL_S)
        if not in_time:
            give_up()
        await writing
    finally:
        writing.cancel()
    return bool(in_time)


async def _refuse(context: _Context, error: RequestError) -> NoReturn:
    """End the call; where it can succeed later, with RetryInfo."""
    details: tuple[tuple[str, bytes], ...] = ()
    code = grpc.StatusCode.INVALID_ARGUMENT
    if isinstance(error, NotFound):
        code = grpc.StatusCode.NOT_FOUND
    elif isinstance(error, Overloaded):
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        status = status_pb2.Status(code=code.value[0], message=str(error))
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        status.details.add().Pack(retry)
        details = (("grpc-status-details-bin", status.SerializeToString()),)
    elif error.status >= 500:
        code = grpc.StatusCode.INTERNAL
    await context.abort(code, str(error), details)
    raise AssertionError("abort always raises")
