"""The content of a message, whoever's API it is: text, or blocks of many types, as parts.

Sources: OpenAI API reference (chat completions, responses), Anthropic API reference (content blocks), Gemini API
reference (Part), Amazon Bedrock API reference (ContentBlock), OpenTelemetry GenAI conventions (message parts), vLLM's
multimodal inputs. Ids of calls are left out: most models' templates do not render them, and where one does
(Mistral's) they are sent again as they were. A type that is not known here becomes a FILE with the hash of the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachemodel.prompts.model import Kind, Part
from cachemodel.prompts.text import compact, hashed, intern, without

MARKS = ("cache_control", "cachePoint", "cache_point")
"""Under these names senders mark where a provider's cache shall end: a field of a block, or a block of its own."""

_NOT_SAID = ("id", "call_id", "tool_use_id", "tool_call_id", "toolUseId", "type", "status", *MARKS)

# type of a block -> the fields that hold what it says, in their order, and what they are (None: what the message is)
_TEXT: dict[str, tuple[Kind | None, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("text", "input_text", "output_text", "summary_text", "reasoning_text"),
        (None, ("text", "content")),  # the second is OpenTelemetry's
    ),
    "refusal": (None, ("refusal",)),
    "compaction": (None, ("content", "encrypted_content")),
    "search_result": (None, ("source", "title", "content")),
    "thinking": (Kind.REASONING, ("thinking", "content")),
    "reasoning": (Kind.REASONING, ("summary", "content", "text")),
    "reasoning.text": (Kind.REASONING, ("text",)),
    "reasoning.summary": (Kind.REASONING, ("summary",)),
    "tool_result": (Kind.RESULT, ("content",)),
    "mcp_tool_result": (Kind.RESULT, ("content",)),
    "web_search_tool_result": (Kind.RESULT, ("content",)),
    "function_call_output": (Kind.RESULT, ("output",)),
    "custom_tool_call_output": (Kind.RESULT, ("output",)),
    "tool_call_response": (Kind.RESULT, ("response", "result")),
    "server_tool_call_response": (Kind.RESULT, ("server_tool_call_response",)),
}
_CALLS = frozenset(
    (
        *("tool_use", "server_tool_use", "mcp_tool_use", "function_call", "custom_tool_call"),
        *("tool_call", "server_tool_call"),
    )
)
_MEDIA: dict[str, tuple[Kind, str]] = {
    **dict.fromkeys(("image", "image_url", "input_image", "image_file"), (Kind.IMAGE, "image")),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), (Kind.AUDIO, "audio")),
    **dict.fromkeys(("video", "video_url", "input_video"), (Kind.FILE, "video")),
    **dict.fromkeys(("file", "input_file", "document", "file_data", "blob", "uri"), (Kind.FILE, "file")),
    **dict.fromkeys(("image_embeds", "audio_embeds", "prompt_embeds"), (Kind.EMBEDS, "embeds")),
}
_BASE64 = ("data", "file_data", "bytes", "content")
_PAYLOADS = (
    *("url", "image_url", "file_url", "uri", "fileUri", "file_uri"),
    *(*_BASE64, "file_id", "fileId"),
)
# A block without a type is told by its one field, as Gemini's and Bedrock's are.
_BARE: dict[str, Kind] = {
    **dict.fromkeys(
        ("functionCall", "function_call", "toolUse", "executableCode", "executable_code"), Kind.CALL
    ),
    **dict.fromkeys(("functionResponse", "function_response", "codeExecutionResult"), Kind.RESULT),
    "code_execution_result": Kind.RESULT,
}
_BARE_MEDIA = ("inlineData", "inline_data", "fileData", "file_data", "image", "audio", "video", "document")


class Parts:
    """Collects the parts of one prompt. role, message: of the message that is being read."""

    __slots__ = ("marks", "message", "parts", "role")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.marks: list[str] = []
        self.role = ""
        self.message = -1

    def add(self, path: str, kind: Kind, text: str) -> None:
        """A part of the message, unless it says nothing."""
        if text:
            self.parts.append(Part(intern(path), self.role, kind, text, self.message))

    def opaque(self, path: str, value: object) -> None:
        """What nothing is known of but that it was sent."""
        self.add(path, Kind.FILE, hashed("file", value))

    def mark(self, path: str, holder: Mapping[str, Any]) -> None:
        """Remember a cache breakpoint where there is one."""
        if not holder.keys().isdisjoint(MARKS) and any(holder.get(name) for name in MARKS):
            self.marks.append(intern(path))

    def content(self, path: str, value: object, kind: Kind = Kind.TEXT) -> None:
        """A message's content: a text, a block or a list of both. kind: of its texts."""
        if isinstance(value, str):
            self.add(path, kind, value)
        elif isinstance(value, list):
            for index, block in enumerate(value):
                self._block(f"{path}[{index}]", block, kind)
        elif value is not None:
            self._block(path, value, kind)

    def value(self, path: str, value: object, kind: Kind) -> None:
        """What a tool returned: a text, blocks, or any JSON value."""
        blocks = isinstance(value, list) and all(isinstance(one, dict) and "type" in one for one in value)
        if isinstance(value, str) or (blocks and value):
            self.content(path, value, kind)
        elif value is not None:
            self.add(path, kind, compact(value))

    def call(self, path: str, call: object) -> None:
        """A call of a tool: its name and arguments, without its id."""
        self.add(path, Kind.CALL, compact(without(call, *_NOT_SAID) if isinstance(call, dict) else call))

    def media(self, path: str, kind: Kind, name: str, block: object) -> None:
        """An image or the like, by the bytes or the address that were sent."""
        while isinstance(block, dict):
            field = next((one for one in _PAYLOADS if block.get(one)), None)
            inner = block.get("source") or (block[field] if field else None)
            if inner is None:
                return self.add(path, kind, hashed(name, without(block, *MARKS)))
            if isinstance(inner, str):
                return self.add(path, kind, hashed(name, inner, base64=field in _BASE64))
            block = inner
        return self.add(path, kind, hashed(name, block, base64=True))

    def _block(self, path: str, block: object, kind: Kind) -> None:
        if isinstance(block, str):
            return self.add(path, kind, block)
        if not isinstance(block, dict):
            return self.opaque(path, block)
        self.mark(path, block)
        known = len(self.parts)
        form = block.get("type")
        if not isinstance(form, str):
            said = self._bare(path, block, kind)
        elif form in _TEXT:
            said = self._texts(path, block, *_TEXT[form], kind)
        elif form in _CALLS:
            said = True
            self.call(path, block)
        elif form in _MEDIA:
            said = True
            self._medium(path, form, block, kind)
        else:
            said = False
        if not said and len(self.parts) == known:
            self.opaque(path, without(block, *MARKS))
        return None

    def _texts(
        self, path: str, block: Mapping[str, Any], own: Kind | None, fields: tuple[str, ...], kind: Kind
    ) -> bool:
        """Whether the block has any of its fields, though they may say nothing."""
        told = False
        for name in fields:
            if (value := block.get(name)) is None:
                continue
            told = True
            if own is Kind.RESULT:
                self.value(f"{path}.{name}", value, own)
            else:
                self.content(f"{path}.{name}", value, own or kind)
        if block.get("encrypted_content") and own is Kind.REASONING:
            told = True
            self.add(
                f"{path}.encrypted_content", Kind.REASONING, hashed("reasoning", block["encrypted_content"])
            )
        return told

    def _medium(self, path: str, form: str, block: Mapping[str, Any], kind: Kind) -> None:
        source = block.get("source")
        if isinstance(source, dict) and source.get("type") in ("text", "content"):
            for name in ("title", "context"):
                self.content(f"{path}.{name}", block.get(name), kind)
            field = "data" if source["type"] == "text" else "content"
            return self.content(f"{path}.source.{field}", source.get(field), kind)
        own, name = _MEDIA[form]
        modality = block.get("modality")
        if isinstance(modality, str):  # OpenTelemetry's parts name it
            own, name = _MEDIA.get(modality, (own, name))
        inner = block.get(form)
        return self.media(path, own, name, inner if isinstance(inner, (dict, str)) and inner else block)

    def _bare(self, path: str, block: Mapping[str, Any], kind: Kind) -> bool:
        """A block that tells its type by a field's name. Whether that is known."""
        if any(name in block for name in ("cachePoint", "cache_point")):
            return True
        if isinstance(block.get("text"), str):
            self.add(f"{path}.text", Kind.REASONING if block.get("thought") is True else kind, block["text"])
            return True
        if isinstance(result := block.get("toolResult"), dict):
            self.content(f"{path}.toolResult.content", result.get("content"), Kind.RESULT)
            return True
        if "json" in block:
            self.add(f"{path}.json", kind, compact(block["json"]))
            return True
        for name, own in _BARE.items():
            if (value := block.get(name)) is not None:
                said = without(value, *_NOT_SAID) if isinstance(value, dict) else value
                self.add(f"{path}.{name}", own, compact(said))
                return True
        for name in _BARE_MEDIA:
            if isinstance(value := block.get(name), (dict, str)) and value:
                self.media(f"{path}.{name}", *_by_mime(name, value), value)
                return True
        return False


def _by_mime(name: str, value: object) -> tuple[Kind, str]:
    mime = value.get("mimeType") or value.get("mime_type") if isinstance(value, dict) else None
    told = mime.partition("/")[0] if isinstance(mime, str) else name
    return _MEDIA.get(told, (Kind.FILE, "file"))
