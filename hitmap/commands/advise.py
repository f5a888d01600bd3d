"""`hitmap advise`: which part of the prompts breaks the cache, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from cachemodel.errors import UsageError
from hitmap.commands._output import emit, output_options

if TYPE_CHECKING:
    from analysis.prefix_replay.rules import Rule
    from cachemodel.prompts.model import Prompt

CACHES = ("vllm", "sglang", "llama.cpp", "openai", "anthropic")
OVER_BUDGET = 1


@click.command()
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--cache",
    type=click.Choice(CACHES),
    default="vllm",
    show_default=True,
    help="By whose rules prompts are found again.",
)
@click.option(
    "--block-size", type=click.IntRange(1, 65536), help="Tokens of a block or page. [default: 16; sglang 1]"
)
@click.option(
    "--tokenizer",
    metavar="PATH|approximate",
    default="approximate",
    show_default=True,
    help="A model's folder or its tokenizer.json.",
)
@click.option(
    "--min-share",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="What saves a smaller share of the computed tokens is not told.",
)
@click.option("--check", is_flag=True, help="For CI: exit code 1 when a suggestion is past the budget.")
@click.option(
    "--budget",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="With --check: the share of computed tokens that a suggestion may save.",
)
@output_options
def command(
    logs: tuple[Path, ...],
    cache: str,
    block_size: int | None,
    tokenizer: str,
    min_share: float,
    check: bool,
    budget: float,
    output: str | None,
    as_json: bool,
    file: Path | None,
) -> None:
    """Which part of the prompts breaks prefix caching, and what to write instead?

    A LOG has a request a line, as JSON: of OpenAI's or Anthropic's API, alone or under body, with or without its
    response; ShareGPT conversations, plain texts, token ids, GenAI spans. What differs between prompts of one template
    is learned from them, and every suggestion is replayed through the rules of the cache.

    \b
      hitmap advise requests.jsonl
      hitmap advise requests.jsonl --tokenizer /models/llama-8b --block-size 16
      hitmap advise requests.jsonl --cache anthropic --format markdown -o advice.md
      hitmap advise requests.jsonl --check --budget 0.05     # exit code 1 when a fault costs more than 5 %

    Exit codes with --check: 0 within the budget, 1 past it, 2 wrong call. docs/advisor.md says how to read it.
    """
    from analysis.advisor import text
    from analysis.advisor.advice import advise
    from analysis.advisor.report import report
    from hitmap.prompt_tokens import body_tokens

    tokens = body_tokens(tokenizer)
    rule, name = _cache(cache, block_size)
    prompts, left_out = _read(logs)
    with Console(stderr=True).status("") as status:
        advice = advise(
            prompts,
            tokens,
            rule,
            cache_name=name,
            tokens_by=tokens.name,
            min_share=min_share,
            progress=status.update,
        )
    untold = [f"{count:,} requests: {why}" for why, count in tokens.untold.items()]
    told = report(advice, [*left_out, *untold])
    emit(told, output, as_json, file, to_terminal=text.to_terminal, to_markdown=text.to_markdown)
    if check and any(one.share > budget for one in told.suggestions):
        raise SystemExit(OVER_BUDGET)


def _cache(name: str, block_size: int | None) -> tuple[Rule, str]:
    """The rule of a cache without limits, and what to call it."""
    from analysis.prefix_replay.rules import ANTHROPIC, BlockRule, ProviderRule, RadixRule, SlotRule

    if block_size is not None and name not in ("vllm", "sglang"):
        raise UsageError(f"{name} has no blocks of a size; --block-size is for vllm and sglang")
    if name == "vllm":
        size = block_size or 16
        return BlockRule(block_size=size), f"vLLM's prefix cache in blocks of {size} tokens"
    if name == "sglang":
        size = block_size or 1
        return RadixRule(page_size=size), f"SGLang's radix cache in pages of {size} token{'s' * (size > 1)}"
    if name == "llama.cpp":
        return SlotRule(), "the slots of llama.cpp's server"
    return (ProviderRule(), "OpenAI's cache") if name == "openai" else (ANTHROPIC, "Anthropic's cache")


def _read(logs: Sequence[Path]) -> tuple[list[Prompt], list[str]]:
    """The prompts of the logs, and what was none."""
    from hitmap.prompt_files import PromptFiles

    screen = Console(stderr=True)
    whole = sum(log.stat().st_size for log in logs if log.is_file())
    with Progress(
        TextColumn("reading prompts"), BarColumn(), DownloadColumn(), console=screen, transient=True
    ) as bar:
        task = bar.add_task("", total=whole)
        files = PromptFiles(logs, progress=lambda count: bar.advance(task, count))
        prompts = list(files)
    left_out = [
        f"{out.count:,} lines: {why}, the first at {out.first}" for why, out in files.left_out.items()
    ]
    if files.mended:
        left_out.append(f"{files.mended:,} lines had broken UTF-8, which was replaced")
    return prompts, left_out
