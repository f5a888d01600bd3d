"""What the field reports about usage have in common: figures over requests, responses and spans with some usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.field_reports.form import Figure, Responses, Scrapes, Spans


def figure(expression: str, value: Any) -> Figure:
    """A figure over the requests of the server."""
    return Figure(f"SELECT {expression} FROM requests WHERE server = {{server:String}}", value)


def tokens(prompt: int | None, cached: int | None, computed: int | None) -> list[Figure]:
    """Sums over all requests; NULL where none tells."""
    return [
        figure("sumOrNull(prompt_tokens)", prompt),
        figure("sumOrNull(cached_tokens)", cached),
        figure("sumOrNull(prompt_tokens - cached_tokens)", computed),
    ]


def calls(row: int, count: int, usage: Mapping[str, Any], case: str = "") -> Responses:
    """As many responses with one and the same usage."""
    return Responses([{"id": f"{row}{case}-{number}", "usage": dict(usage)} for number in range(count)])


def vllm(**counters: tuple[int, int]) -> Scrapes:
    """Two scrapes of vLLM: each counter before and after."""
    return Scrapes(
        [
            "\n".join(
                f'vllm:{name}_total{{engine="0",model_name="m"}} {values[at]}'
                for name, values in counters.items()
            )
            for at in (0, 1)
        ]
    )


def chat(row: int, *calls: Mapping[str, str | int], scope: str = "app", first_id: int | None = None) -> Spans:
    """Clients' spans of calls, each with an id of its own."""
    attributes = [
        {"gen_ai.operation.name": "chat", "gen_ai.response.id": f"{row}-{number}", **told}
        for number, told in enumerate(calls)
    ]
    return Spans(attributes, scope=scope, span_name="chat m", first_id=first_id or row * 100)


def openai(prompt: int, cached: int | None, completion: int = 8) -> dict[str, Any]:
    """OpenAI's usage; cached None: the details are null."""
    details = None if cached is None else {"cached_tokens": cached}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "prompt_tokens_details": details}
