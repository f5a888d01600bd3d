"""The HTTP door: the OpenAI API's paths, and beside them vLLM's and llama.cpp's that tools look for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from engine.clock import now_ns
from engine.errors import NotFound, RequestError
from engine.faults import Faults
from engine.serving import answers, protocol
from engine.serving.admin import Admin
from engine.serving.frontend import Frontend, Options, Prompt
from engine.serving.guard import Guarded, error_response
from engine.serving.reply import Reply
from engine.telemetry import Telemetry
from engine.telemetry.exposition import CONTENT_TYPE

_T = TypeVar("_T", bound=msgspec.Struct)


class TooLarge(RequestError):
    """A body that no prompt of this model needs."""

    status = 413


class OpenAIApi:
    """Endpoints. Each takes a Starlette request and raises RequestError."""

    def __init__(self, frontend: Frontend, telemetry: Telemetry) -> None:
        self._frontend, self._telemetry = frontend, telemetry
        self._started = int(time.time())

    async def chat(self, request: Request) -> Reply:
        name = _request_id(request)
        asked = await self._read(request, protocol.ChatRequest)
        prompt = await self._frontend.encode(
            self._chat_prompt(asked), add_special_tokens=asked.add_special_tokens
        )
        options = _options(
            request, asked, f"chatcmpl-{name}", asked.max_completion_tokens or asked.max_tokens
        )
        return await self._reply([prompt], options, asked, answers.Chat)

    async def completions(self, request: Request) -> Reply:
        name = _request_id(request)
        asked = await self._read(request, protocol.CompletionRequest)
        prompts = [
            await self._frontend.encode(prompt, add_special_tokens=asked.add_special_tokens)
            if isinstance(prompt, str)
            else Prompt(prompt)
            for prompt in protocol.prompts(asked.prompt, self._frontend.tokenizer.vocab_size)
        ]
        options = _options(request, asked, f"cmpl-{name}", asked.max_tokens or 16)
        return await self._reply(prompts, options, asked, answers.Completion)

    async def models(self, request: Request) -> Response:
        return _json({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        self._frontend.check_model(request.path_params["model"])
        return _json(self._model())

    async def tokenize(self, request: Request) -> Response:
        asked = await self._read(request, protocol.TokenizeRequest)
        if (asked.prompt is None) == (asked.messages is None):
            raise RequestError("Give either a prompt or messages.", param="prompt")
        text = self._chat_prompt(asked) if asked.prompt is None else asked.prompt
        special = asked.prompt is not None if asked.add_special_tokens is None else asked.add_special_tokens
        tokens = (await self._frontend.encode(text, add_special_tokens=special)).token_ids
        return _json({"count": len(tokens), "max_model_len": self._frontend.max_model_len, "tokens": tokens})

    async def detokenize(self, request: Request) -> Response:
        asked = await self._read(request, protocol.DetokenizeRequest)
        size = self._frontend.tokenizer.vocab_size
        if any(token >= size for token in asked.tokens):
            raise RequestError(f"tokens: one is outside the vocabulary of {size}.", param="tokens")
        return _json({"prompt": self._frontend.tokenizer.decode(asked.tokens)})

    async def apply_template(self, request: Request) -> Response:
        return _json({"prompt": self._chat_prompt(await self._read(request, protocol.TemplateRequest))})

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self._frontend.engine.alive else 503)

    async def version(self, request: Request) -> Response:
        """vLLM's answer, and what its spans call it, so that who watches it knows them for its own."""
        names = {
            "service_name": self._telemetry.service_name,
            "service_instance_id": self._telemetry.instance_id,
        }
        return _json({"version": self._telemetry.version, **names})

    async def metrics(self, request: Request) -> Response:
        return Response(self._telemetry.exposition(), media_type=CONTENT_TYPE)

    async def kv_event_sources(self, request: Request) -> Response:
        return _json(self._telemetry.kv_event_sources())

    def _model(self) -> answers.Json:
        return {
            "id": self._frontend.model,
            "object": "model",
            "created": self._started,
            "owned_by": "hitmap",
            "max_model_len": self._frontend.max_model_len,
        }

    async def _read(self, request: Request, kind: type[_T]) -> _T:
        """The body as a request for a model that we have."""
        most = self._frontend.message_bytes
        too_large = TooLarge(
            f"The body is larger than {most} bytes, more than any prompt of this model.",
            code="request_too_large",
        )
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise too_large
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise too_large
        asked = protocol.read(bytes(body), kind)
        self._frontend.check_model(getattr(asked, "model", ""))
        return asked

    def _chat_prompt(self, asked: Any) -> str:
        return str(self._frontend.tokenizer.chat_prompt(asked.messages, asked.tools))

    async def _reply(
        self, prompts: list[Prompt], options: Options, asked: protocol.Generate, form: type[answers.Form]
    ) -> Reply:
        if asked.stream_options and not asked.stream:
            raise RequestError("stream_options needs stream: true.", param="stream_options")
        call = await self._frontend.submit(prompts, options)
        first = call.requests[0].request_id
        response_id = first if len(prompts) == 1 else first.removesuffix("-0")
        name = options.request_id.partition("-")[2]
        answer = form(response_id, self._frontend.model)
        return Reply(call, answer, name, stream=asked.stream, usage=asked.wants_usage)


def http_app(
    frontend: Frontend,
    telemetry: Telemetry,
    faults: Faults,
    restart: Callable[[], None] | None,
    token: str | None,
) -> ASGIApp:
    """The application. restart: has the process begin again, None where it cannot; token: what callers must show."""
    api, admin = OpenAIApi(frontend, telemetry), Admin(frontend.engine, faults, restart)
    paths: dict[str, dict[str, Callable[[Request], Awaitable[Any]]]] = {
        "/v1/chat/completions": {"POST": api.chat},
        "/v1/completions": {"POST": api.completions},
        "/v1/models": {"GET": api.models},
        "/v1/models/{model:path}": {"GET": api.model},
        "/tokenize": {"POST": api.tokenize},
        "/detokenize": {"POST": api.detokenize},
        "/apply-template": {"POST": api.apply_template},
        "/health": {"GET": api.health},
        "/version": {"GET": api.version},
        "/metrics": {"GET": api.metrics},
        "/kv_event_sources": {"GET": api.kv_event_sources},
        "/reset_prefix_cache": {"POST": admin.reset_prefix_cache},
        "/v1/admin/faults": {"GET": admin.faults, "POST": admin.inject, "DELETE": admin.clear},
        "/v1/admin/restart": {"POST": admin.restart},
    }
    app = Starlette(
        routes=[Route(path, _endpoint(methods), methods=list(methods)) for path, methods in paths.items()],
        exception_handlers={
            RequestError: _refused,
            HTTPException: _no_such_path,
            ClientDisconnect: _left,
            Exception: _failed,
        },
    )
    return Guarded(app, token)


def _endpoint(methods: dict[str, Callable[[Request], Awaitable[Any]]]) -> Callable[[Request], Awaitable[Any]]:
    async def endpoint(request: Request) -> Any:
        request.state.arrived_ns = now_ns()
        return await methods["GET" if request.method == "HEAD" else request.method](request)

    return endpoint


def _options(request: Request, asked: protocol.Generate, request_id: str, max_tokens: int | None) -> Options:
    traceparent, tracestate = protocol.trace_context(request.headers)
    return Options(
        request_id=request_id,
        arrived_ns=request.state.arrived_ns,
        max_tokens=max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=max(asked.top_k, 0),
        seed=asked.seed,
        ignore_eos=asked.ignore_eos,
        stop=asked.stops,
        salt=asked.cache_salt or "",
        cache_key=asked.prompt_cache_key,
        reads_off=asked.skip_reading_prefix_cache,
        reports_reuse=asked.reports_reuse,
        traceparent=traceparent,
        tracestate=tracestate,
    )


def _request_id(request: Request) -> str:
    """What the client calls the request, or a new name."""
    given = request.headers.get("x-request-id")
    return uuid.uuid4().hex if given is None else protocol.request_id(given)


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)  # noqa: S101 - what it is registered for
    response = error_response(error)
    given = request.headers.get("x-request-id", "")
    if protocol.REQUEST_ID.fullmatch(given):
        response.headers["x-request-id"] = given
    return response


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    text = f"{request.method} {request.url.path[:200]}: {error.detail}"
    response = error_response(
        NotFound(text, code="not_found" if error.status_code == 404 else "method_not_allowed")
    )
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _left(request: Request, error: Exception) -> Response:
    """The client went away before its body was here; nobody reads this."""
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:
    failed = RequestError("The server failed; its log says why.", code="internal_error")
    failed.status, failed.kind = 500, "server_error"
    return error_response(failed)
