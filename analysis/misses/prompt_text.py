"""The text of a prompt, where capture kept it, by its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from analysis.misses.columns import at
from analysis.misses.find import Found

LONGEST = 160  # characters of a run that are kept
_MIDDLE = " \N{HORIZONTAL ELLIPSIS} "
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class PromptText:
    """Texts one after the other, and the token of the prompt before which each ends. capture: redacted or full."""

    texts: Sequence[str]
    ends: Sequence[int]
    capture: str

    def of(self, start: int, end: int, longest: int = LONGEST) -> str:
        """About the text of tokens [start, end): within a text tokens count as if all were equally long."""
        found, begin = [], 0
        for text, upto in zip(self.texts, self.ends, strict=True):
            if upto > start and begin < end and upto > begin:
                a = len(text) * max(0, start - begin) // (upto - begin)
                b = -(-len(text) * (min(end, upto) - begin) // (upto - begin))
                found.append(text[a:b])
            begin = max(begin, upto)
        return shortened("".join(found), longest)


def shortened(text: str, longest: int) -> str:
    """Its beginning and its end."""
    if len(text) <= longest:
        return text
    half = (longest - len(_MIDDLE)) // 2
    return text[:half] + _MIDDLE + text[-half:]


def prompt_text(client: Client, found: Found) -> PromptText | None:
    """The text of a request's prompt; None where it was not captured."""
    rows = client.query(
        f"""
        SELECT toString(capture), segments, ends FROM prompts
        WHERE key = sipHash64({{id:String}}) AND request_id = {{id:String}} AND server = {{server:String}}
            AND time >= {at("from")} AND time <= {at("to")}
        ORDER BY capture DESC, time DESC LIMIT 1
        """,
        parameters={
            "id": found.request_id,
            "server": found.server,
            "from": found.time - _HOUR_US,
            "to": found.until + _HOUR_US,
        },
    ).result_rows
    if not rows:
        return None
    capture, segments, ends = rows[0]
    told = client.query(
        "SELECT segment, any(text) FROM segments WHERE segment IN {segments:Array(UInt64)} GROUP BY segment",
        parameters={"segments": [int(segment) for segment in segments]},
    ).result_rows
    texts = {int(segment): str(text) for segment, text in told}
    return PromptText(
        [str(texts.get(segment, "")) for segment in segments], [int(end) for end in ends], str(capture)
    )
