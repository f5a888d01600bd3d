"""What `hitmap advise` reads: logs of requests, with where each prompt stands and what was none."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from cachemodel.prompts.model import Prompt
from cachemodel.prompts.rebuilt import as_request
from collector.chains.prompt import read_body
from hitmap.advise.places import Place, PlacedFiles

if TYPE_CHECKING:
    from analysis.advisor.learning.model import Slot
    from hitmap.prompt_tokens import BodyTokens

OWN_TOKENS = "the KV events themselves"


@dataclass(frozen=True)
class Read:
    """The prompts of logs, where each stands, by its id, and what was none. tokens_by: who tells their tokens, where
    it is not the tokenizer alone; block_size, cache: of the server that tells of them; all three empty for logs of
    requests. partings: where prompts part by their hashes alone, a sentence each, of a store."""

    prompts: list[Prompt]
    places: Mapping[str, Place]
    left_out: list[str]
    tokens_by: str = ""
    block_size: int | None = None
    cache: str = ""
    partings: Sequence[str] = ()


def read_logs(logs: Sequence[Path], tokens: BodyTokens | None = None) -> Read:
    """With a bar on the terminal; raises UserError for a file that cannot be read. tokens: by which prompts that came
    as tokens are read as what they say."""
    screen = Console(stderr=True)
    whole = sum(log.stat().st_size for log in logs if log.is_file())
    with Progress(
        TextColumn("reading prompts"), BarColumn(), DownloadColumn(), console=screen, transient=True
    ) as bar:
        task = bar.add_task("", total=whole)
        files = PlacedFiles(logs, progress=lambda count: bar.advance(task, count))
        with _no_search_for_circles():
            prompts = [one if _is_request(one) else as_request(one) for one in files]
    left_out = list(_left_out(files))
    if tokens is not None:
        prompts = tokens.read(prompts, with_replies=bool(files.of_events))
        left_out += tokens.unread()
    if not files.of_events:
        return Read(prompts, files.places, left_out)
    return Read(
        prompts,
        files.places,
        [*left_out, *_of_events(tokens)],
        OWN_TOKENS if tokens is None or not tokens.reads else f"{OWN_TOKENS}, read by {tokens.name}",
        files.block_sizes.most_common(1)[0][0],
    )


@contextmanager
def _no_search_for_circles() -> Iterator[None]:
    """What is made in here stays and refers to nothing that refers back: Python, which would look through all of it
    again and again for circles to take apart, never does. It is let go like everything else when nobody needs it."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if searching:
            gc.enable()


def _is_request(prompt: Prompt) -> bool:
    """Whether its record has a request whose tokens can be told; conversations, spans and texts have none."""
    if prompt.body is None:
        return False
    said = prompt.body.get("messages")
    if isinstance(said, list) and said and all(isinstance(one, dict) for one in said):
        return True  # as most are, and quicker told than by reading them
    return not isinstance(read_body(prompt.body), str)


def _left_out(files: PlacedFiles) -> Iterator[str]:
    for why, out in files.left_out.items():
        yield f"{out.count:,} lines: {why}, the first at {out.first}"
    if files.mended:
        yield f"{files.mended:,} lines had broken UTF-8, which was replaced"
    for why, out in files.blocks_left_out.items():
        yield f"{out.count:,} blocks: {why}, the first at {out.first}"
    if files.reordered:
        yield f"{files.reordered:,} messages were recorded out of order, by their numbers, and read as they stand"
    if files.missing:
        yield f"{files.missing:,} messages are missing between those recorded, by their numbers"


def _of_events(tokens: BodyTokens | None) -> Iterator[str]:
    """What no events tell, so that nobody takes their figures for those of requests."""
    yield (
        "prompts that were in the cache as a whole, and the last tokens of each, fewer than a block: KV events do not"
        " tell of them"
    )
    if tokens is None or not tokens.reads:
        yield "what the tokens say, and where replies begin: --tokenizer tells"


class Positions:
    """Where slots stand, in tokens of the prompt of their example."""

    def __init__(self, prompts: Sequence[Prompt], tokens: BodyTokens) -> None:
        self._by_id = {prompt.request_id: prompt for prompt in prompts}
        self._tokens = tokens

    def __call__(self, slot: Slot) -> int | None:
        """Tokens before it; None where nobody knows."""
        prompt = self._by_id.get(slot.example)
        return None if prompt is None else self._tokens.position(prompt, slot.path, slot.offset)
