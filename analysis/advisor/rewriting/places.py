"""Where a request says what: system prompts and messages, whoever's API it is. Pure.

OpenAI's chat completions (`messages`) and responses (`instructions`, `input`), Anthropic's messages and Bedrock's
Converse (`system`, `messages`), Gemini's (`systemInstruction`, `contents`), and texts to complete (`prompt`). As
`rules`, written into users' gateways: Python 3.9 and its standard library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.advisor.rewriting.blocks import GONE, at_end_of, each_text, new_block, without_lost

Body = Mapping[str, Any]

PROMPTS = ("system", "instructions", "systemInstruction", "system_instruction")
"""Of the system's, beside the conversation."""
_ROLES = {"developer": "system", "model": "assistant"}
_ITEMS = {
    "function_call_output": "tool",
    "function_call": "assistant",
}  # of the Responses API, without a role
_HOLDERS = ("content", "parts", "output")  # of what a message says


def each_content(role: str, change: Callable[[Any], Any], body: Body) -> Body:
    """The body with what messages and prompts of a role say changed, a text or blocks each; the same body where none
    is. A message or prompt that is changed to GONE is taken out."""
    told = dict(body)
    if role == "prompt" and isinstance(text := body.get("prompt"), str):
        _put(told, "prompt", change(text))
    for name in PROMPTS if role == "system" else ():
        if own := body.get(name):
            _put(told, name, _prompt(change, own))
    talk = talk_of(body)
    if role == "user" and isinstance(text := body.get(talk), str) and talk == "input":
        _put(told, talk, change(text))
    if messages := messages_of(body):
        told[talk] = _changed(role, change, messages)
    return told if told != body else body


def each_text_of(role: str, change: Callable[[str], str], body: Body) -> Body:
    """The body with the texts of a role changed; what would say nothing then stays as it is."""
    return each_content(role, lambda content: each_text(change, content) or content, body)


def texts_of(role: str, body: Body) -> list[str]:
    """The texts of a role, in order."""
    told: list[str] = []

    def heard(text: str) -> str:
        told.append(text)
        return text

    each_text_of(role, heard, body)
    return told


def _put(told: dict[str, Any], name: str, value: Any) -> None:
    if value is GONE:
        del told[name]
    else:
        told[name] = value


def _prompt(change: Callable[[Any], Any], own: Any) -> Any:
    """A system prompt: a text, blocks, messages of the Responses API, or Gemini's with `parts`."""
    if isinstance(own, list) and _are_messages(own):
        return _changed("system", change, own)
    if isinstance(own, dict):
        return _changed_message(change, own) if "parts" in own else own
    return change(own)


def _changed(role: str, change: Callable[[Any], Any], messages: Sequence[Any]) -> list[Any]:
    """Empty where nothing is left, or nothing that could hold the marks of what is gone."""
    told = [
        _changed_message(change, message) if role_of(message) == role else message for message in messages
    ]
    return without_lost(messages, told) if GONE in told else told


def _changed_message(change: Callable[[Any], Any], message: Any) -> Any:
    holder = holder_of(message) if isinstance(message, dict) else ""
    if not holder or not message.get(holder):
        return message
    told = change(message[holder])
    return GONE if told is GONE else {**message, holder: told}


def holder_of(message: Mapping[str, Any]) -> str:
    """The field of a message that has what it says."""
    return next((name for name in _HOLDERS if name in message), _HOLDERS[0])


def role_of(message: object) -> str:
    """Whose it is; `system` stands for developer, too."""
    told = message if isinstance(message, dict) else {}
    role = told.get("role")
    if isinstance(role, str):
        return _ROLES.get(role, role)
    if isinstance(kind := told.get("type"), str):
        return _ITEMS.get(kind, "")
    return "user" if "parts" in told else ""  # Gemini's of one turn


def talk_of(body: Body) -> str:
    """Where the conversation is."""
    return next((name for name in ("messages", "input", "contents") if name in body), "messages")


def messages_of(body: Body) -> list[Any]:
    """The conversation, as a list of its own; empty where there is none."""
    messages = body.get(talk_of(body))
    return list(messages) if isinstance(messages, list) else []


def at_end(lines: Sequence[str], body: Body) -> Body:
    """With these lines at the end of the last message of the user, or of the text."""
    text, name = "\n".join(lines), talk_of(body)
    for own in ("prompt", name):
        if isinstance(told := body.get(own), str):
            return {**body, own: f"{told.rstrip()}\n\n{text}"}
    messages = messages_of(body)
    last = next((at for at in range(len(messages) - 1, -1, -1) if role_of(messages[at]) == "user"), None)
    if last is None or role_of(messages[-1]) in ("tool", "function"):
        # what stands in front of a tool's result is history then
        return {**body, name: [*messages, _asked(text, body)]}
    holder = holder_of(messages[last])
    content = messages[last].get(holder)
    if isinstance(content, list):
        content = [*content, new_block(text, content, _kind(body))]
    else:
        content = f"{content}\n\n{text}" if content and isinstance(content, str) else text
    messages[last] = {**messages[last], holder: content}
    return {**body, name: messages}


def _asked(text: str, body: Body) -> dict[str, Any]:
    """A message of the user's, in the form of the others."""
    messages, name = messages_of(body), talk_of(body)
    if name == "contents":
        return {"role": "user", "parts": [{"text": text}]}
    blocks = [
        block
        for one in (*messages, {"content": body.get("system")})
        if isinstance(one, dict) and isinstance(content := one.get("content"), list)
        for block in content
    ]
    own = new_block(text, blocks, _kind(body))
    return {"role": "user", "content": text if "type" in own else [own]}


def at_system_end(lines: Sequence[str], body: Body) -> Body:
    """With these lines at the end of what the system says before the conversation; where it says nothing, at the end of
    the last message of the user."""
    text = "\n".join(lines)
    for name in PROMPTS:
        told = body.get(name)
        if isinstance(told, dict) and isinstance(parts := told.get("parts"), list) and parts:
            return {**body, name: {**told, "parts": at_end_of(parts, text, "")}}
        if told and (isinstance(told, str) or (isinstance(told, list) and not _are_messages(told))):
            return {**body, name: at_end_of(told, text, "text")}
    messages = messages_of(body)
    head = next((at for at, one in enumerate(messages) if role_of(one) != "system"), len(messages))
    if not head or not (told := messages[head - 1].get("content")):
        return at_end(lines, body)
    messages[head - 1] = {**messages[head - 1], "content": at_end_of(told, text, _kind(body))}
    return {**body, talk_of(body): messages}


def _are_messages(told: Sequence[Any]) -> bool:
    return any(isinstance(one, dict) and "role" in one for one in told)


def _kind(body: Body) -> str:
    """The type of a block of text; empty where blocks have none."""
    return {"input": "input_text", "contents": ""}.get(talk_of(body), "text")
