"""What the HTTP API takes: the OpenAI API's requests with vLLM's additions, and nothing that would be ignored.

A parameter that this server does not honour is refused unless its value asks for nothing (`logprobs: false`), and a
name that neither API has is refused with the nearest one that is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from engine.errors import RequestError

Text = Annotated[str, Meta(max_length=1 << 24)]
TokenId = Annotated[int, Meta(ge=0, lt=1 << 32)]
StopString = Annotated[str, Meta(min_length=1, max_length=256)]
Stops = Annotated[list[StopString], Meta(max_length=16)]
Tokens = Annotated[list[TokenId], Meta(min_length=1)]
Salt = Annotated[str, Meta(min_length=1, max_length=256)]
MOST_PROMPTS = 64
REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False


class TextPart(msgspec.Struct):
    type: Literal["text"]
    text: Text


class ExtraArgs(msgspec.Struct, forbid_unknown_fields=True):
    """vllm_xargs. kv_cache_report_mode: full has KV events tell of reused blocks as well."""

    kv_cache_report_mode: Literal["incremental", "full"] = "incremental"


class Message(msgspec.Struct):
    """A turn of a conversation; what else it says (a name, tool calls) goes to the template as it is."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None


class Tool(msgspec.Struct):
    type: Literal["function"]
    function: dict[str, Any]


class Generate(msgspec.Struct, kw_only=True):
    """What chat and completions have in common."""

    model: str = ""
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=(1 << 32) - 1)] = 0
    seed: Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    stop: StopString | Stops = msgspec.field(default_factory=list)
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    cache_salt: Salt | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=256)] = ""
    skip_reading_prefix_cache: bool = False
    vllm_xargs: ExtraArgs | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def reports_reuse(self) -> bool:
        return self.vllm_xargs is not None and self.vllm_xargs.kv_cache_report_mode == "full"

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(Generate, kw_only=True):
    """/v1/chat/completions"""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool = False  # the template has them


class CompletionRequest(Generate, kw_only=True):
    """/v1/completions"""

    prompt: str | list[Any]
    add_special_tokens: bool = True


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """/tokenize: a prompt or messages. add_special_tokens: as with completions or chat where it is not said."""

    model: str = ""
    prompt: Text | None = None
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """/detokenize"""

    model: str = ""
    tokens: list[TokenId]


class TemplateRequest(msgspec.Struct, kw_only=True):
    """/apply-template"""

    model: str = ""
    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    tools: list[dict[str, Any]] | None = None


# Parameters that are not honoured, with the values that ask for nothing. None, left out here, always does.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "min_tokens": (0,),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "prompt_logprobs": (),
    "bad_words": ([],),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "store": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "return_token_strs": (False,),
    "echo_tokens": (False,),
    "priority": (0,),
    "reasoning_effort": ("none",),
}
# What parts of a message may be called that are not text: image_url, input_audio, video_url, file.
_MEDIA = {"image": "images are", "audio": "audio is", "video": "videos are", "file": "files are"}
# Taken whatever they say, since nothing the server does depends on them.
_IDLE = frozenset(
    {"user", "metadata", "service_tier", "safety_identifier", "parallel_tool_calls", "request_id"}
)

_T = TypeVar("_T", bound=msgspec.Struct)
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_WHERE = re.compile(r" - at `\$\.?(?P<path>.*)`$")


def read(body: bytes, kind: type[_T]) -> _T:
    """The request in a body. Raises RequestError that names the parameter."""
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"The body is not JSON in UTF-8: {error}", code="invalid_json") from None
    if not isinstance(told, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    known = kind.__struct_fields__
    given = {name: value for name, value in told.items() if value is not None}
    for name in given.keys() - set(known):
        _check_other(name, given[name], known)
    request = convert({name: given[name] for name in known if name in given}, kind)
    for number, message in enumerate(given.get("messages", ())):
        _check_parts(message, f"messages[{number}].content")
        convert(message, Message, f"messages[{number}]")
    for number, tool in enumerate(given.get("tools", ())):
        convert(tool, Tool, f"tools[{number}]")
    return request


def convert(value: Any, kind: type[_T], where: str = "") -> _T:
    """Checked against its type. Raises RequestError that says where it is wrong."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        text = str(error)
        found = _WHERE.search(text)
        path = ".".join(filter(None, (where, found["path"] if found else "")))
        said = text[: found.start()] if found else text
        missing = re.search(r"missing required field `(\w+)`", said)
        raise RequestError(
            f"{path}: {said}" if path else said, param=path or (missing[1] if missing else None)
        ) from None


def prompts(prompt: str | list[Any], vocab_size: int) -> list[str | list[int]]:
    """The prompts of a completion: one text, texts, token ids, or lists of token ids."""
    several: list[Any] = prompt if isinstance(prompt, list) else [prompt]
    if several and all(_is_token(item) for item in several):
        several = [several]
    if not several or len(several) > MOST_PROMPTS:
        raise RequestError(f"prompt: one to {MOST_PROMPTS} prompts, not {len(several)}.", param="prompt")
    for item in several:
        if isinstance(item, list) and item and all(_is_token(token) for token in item):
            outside = next((token for token in item if not 0 <= token < vocab_size), None)
            if outside is not None:
                raise RequestError(
                    f"prompt: token id {outside} is outside the vocabulary of {vocab_size}.", param="prompt"
                )
        elif not isinstance(item, str):
            raise RequestError(
                "prompt: a text, a list of texts, token ids, or lists of token ids.", param="prompt"
            )
    return several


def request_id(given: str) -> str:
    """What a caller named its request. Raises RequestError where that is no name."""
    if not REQUEST_ID.fullmatch(given):
        raise RequestError(
            "x-request-id: 1 to 128 characters out of A-Z a-z 0-9 . _ : / + = @ -", param="x-request-id"
        )
    return given


def trace_context(headers: Mapping[str, Any]) -> tuple[str, str]:
    """traceparent and tracestate; both empty where the first is malformed, as W3C's trace context has it."""
    traceparent = str(headers.get("traceparent", ""))
    if not _TRACEPARENT.fullmatch(traceparent):
        return "", ""
    return traceparent, str(headers.get("tracestate", ""))[:512]


def _is_token(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool)


def _check_parts(message: Any, where: str) -> None:
    """Raises RequestError where a part of a message's content is something to look at or to listen to."""
    parts = message.get("content") if isinstance(message, dict) else None
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and (medium := next((name for name in _MEDIA if name in kind), "")):
            raise RequestError(
                f"{where}[{number}]: {_MEDIA[medium]} not supported; this server takes text only.",
                code="unsupported_parameter",
                param=f"{where}[{number}].type",
            )


def _check_other(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Raises RequestError where a parameter outside the request's type asks for something."""
    if name in _IDLE:
        return
    if name in _NEUTRAL:
        # True == 1 in Python, and logprobs: 0 asks for one where logprobs: false does not
        if any(
            value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
            for neutral in _NEUTRAL[name]
        ):
            return
        raise RequestError(
            f"{name}: this server cannot do that; leave it out.", code="unsupported_parameter", param=name
        )
    near = difflib.get_close_matches(name, [*known, *_NEUTRAL, *_IDLE], n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise RequestError(f"Unknown parameter: {name[:64]}.{hint}", code="unknown_parameter", param=name[:64])
