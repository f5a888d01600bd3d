"""`hitmap advise`: which part of the prompts breaks the cache, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from cachemodel.address import server_url
from cachemodel.errors import UsageError, UserError
from hitmap.commands._advise_options import Finite, cache_options, ci_options, rewrite_options
from hitmap.commands._output import emit, output_options
from hitmap.commands._store_option import open_client, open_reader, store_option

if TYPE_CHECKING:
    from analysis.advisor.advice import Advice
    from analysis.advisor.consult import Consulted, Pricing
    from analysis.advisor.pricing.price import Prices
    from analysis.prefix_replay.named import Named
    from hitmap.advise.inputs import Read
    from hitmap.advise.verify import Verified
    from hitmap.advise.view import VerifiedOne
    from hitmap.prompt_tokens import BodyTokens

OVER_BUDGET, UNDECIDED = 1, 3


@click.command()
@click.argument("logs", metavar="[LOG]...", nargs=-1, type=click.Path(path_type=Path))
@cache_options
@click.option(
    "--min-share",
    type=Finite(0, 1),
    default=0.01,
    show_default=True,
    help="What saves a smaller share of the computed tokens is not told.",
)
@click.option(
    "--price",
    is_flag=True,
    help="Say it in milliseconds, too: of the store's requests that had these prompts.",
)
@store_option
@ci_options
@rewrite_options
@output_options
def command(
    logs: tuple[Path, ...],
    of_store: str | None,
    cache: str | None,
    block_size: int | None,
    settings: tuple[str, ...],
    tokenizer: str,
    min_share: float,
    price: bool,
    store: str | None,
    check: bool,
    budget: float,
    sarif_file: Path | None,
    junit_file: Path | None,
    folder: Path | None,
    safety: str,
    server: str | None,
    requests: int,
    rate: float,
    max_seconds: float,
    each: bool,
    keep: bool,
    model: str,
    api_key: str,
    output: str | None,
    as_json: bool,
    file: Path | None,
) -> None:
    """Which part of the prompts breaks prefix caching, and what to write instead?

    A LOG has a request a line, as JSON: of OpenAI's or Anthropic's API, alone or under body, with or without its
    response; ShareGPT conversations, plain texts, token ids, GenAI spans; or recorded KV-cache events. Without one the
    prompts are those of the store, where capture keeps them. What differs between prompts of one template is learned
    from them, and every suggestion is replayed through the rules of the cache.

    \b
      hitmap advise requests.jsonl
      hitmap advise requests.jsonl --tokenizer /models/llama-8b --block-size 16
      hitmap advise requests.jsonl --cache anthropic --format markdown -o advice.md
      hitmap advise kv_events.jsonl --tokenizer /models/llama-8b     # what the cache itself tells
      hitmap advise --in '-1h/now,server=vllm-a' --price
      hitmap advise requests.jsonl --check --budget 0.05     # exit code 1 when a fault costs more than 5 %
      hitmap advise requests.jsonl --price                   # milliseconds of P95, by the requests in the store
      hitmap advise requests.jsonl --apply rewrite --verify http://127.0.0.1:8000

    --price finds the log's requests in the store by their ids (hitmap attach URL --log FILE brings them there), and
    serves them again, in a twin of the server's scheduler, with the tokens that each rewrite saves.

    --verify sends each request twice for one token, in arms that find nothing of each other's in the server's cache,
    and says what the rewriting gained in tokens and milliseconds. It costs the server what it computes for them.

    Exit codes with --check: 0 within the budget, 1 past it, 2 wrong call, 3 not decided: no log, nothing in it that
    could be read, most prompts without tokens that could be told, or a server that does not answer. docs/advisor.md
    says how to read it.
    """
    url = server_url(server) if server is not None else ""
    if (each or keep) and not url:
        raise UsageError("--each and --keep are about what is measured: add --verify URL")
    _check_folders(folder, sarif_file, junit_file)
    with _not_decided(check):
        from analysis.advisor.export import chosen
        from analysis.advisor.learning.cause import Safety
        from analysis.prefix_replay.named import named
        from hitmap.advise import view
        from hitmap.advise.deliver import verified, write_for_ci, write_rules
        from hitmap.advise.verify import Bounds

        bounds = Bounds(requests, rate, max_seconds)
        tokens, limits = _tokens(tokenizer), _limits(settings)
        if cache:  # a wrong call is told before anything is read
            named(cache, block_size, limits)
        read = _read(logs, of_store, store, tokens)
        wanted = cache or read.cache or "vllm"
        cached = named(
            wanted, block_size or (read.block_size if wanted in ("vllm", "sglang") else None), limits
        )
        found = _consult(read, tokens, cached, min_share, _pricing(store) if price else None)
        advice, told = found.advice, found.report
        export = chosen(advice, Safety(safety))
        write_for_ci(advice, told, read.places, budget, sarif_file, junit_file)
        if folder:
            write_rules(export, advice, folder)
        failed: UserError | None = None
        if url:
            try:
                measured = verified(
                    url, api_key, model, read.prompts, export, tokens, cached.rule, bounds, each=each
                )
                told = view.with_verified(told, *measured)
                if keep:
                    _keep(store, *measured)
            except UserError as error:  # what is known is told all the same
                failed = error
        emit(told, output, as_json, file, to_terminal=view.to_terminal, to_markdown=view.to_markdown)
        if failed:
            raise failed
    if check and advice.undecided:
        raise SystemExit(UNDECIDED)
    if check and any(one.share > budget for one in told.suggestions):
        raise SystemExit(OVER_BUDGET)


@contextmanager
def _not_decided(check: bool) -> Iterator[None]:
    """Whatever goes wrong in here, no budget was exceeded by it."""
    try:
        yield
    except (UserError, ModuleNotFoundError) as error:
        if check and getattr(error, "exit_code", OVER_BUDGET) == OVER_BUDGET:
            error.exit_code = UNDECIDED  # type: ignore[union-attr]
        raise


def _check_folders(folder: Path | None, *files: Path | None) -> None:
    """Raises UsageError where something could not be written, before anything is worked out."""
    for path in (folder, *files):
        if path and not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")


def _limits(settings: Sequence[str]) -> dict[str, str]:
    """By name. Raises UsageError for what is no NAME=VALUE."""
    pairs = [one.partition("=") for one in settings]
    if wrong := [one for one, (_, equals, _) in zip(settings, pairs, strict=True) if not equals]:
        raise UsageError(f"--set {wrong[0]}: give NAME=VALUE, such as capacity=4096")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _keep(store: str | None, together: Verified, each: Sequence[VerifiedOne]) -> None:
    from hitmap.advise.kept import keep, saved

    with open_client(store) as client:
        keep(client, together.url, saved(together, each))


def _pricing(store: str | None) -> Pricing:
    def price(advice: Advice) -> Prices:
        from analysis.advisor.priced import priced

        with open_reader(store) as client:
            return priced(client, advice)

    return price


def _consult(
    read: Read, tokens: BodyTokens, cache: Named, min_share: float, price: Pricing | None
) -> Consulted:
    from analysis.advisor.consult import consult
    from hitmap.advise.inputs import Positions

    with Console(stderr=True).status("") as status:
        return consult(
            read.prompts,
            tokens,
            cache,
            tokens_by=read.tokens_by,
            min_share=min_share,
            price=price,
            position=Positions(read.prompts, tokens),
            left_out=read.left_out,
            partings=read.partings,
            progress=status.update,
        )


def _read(logs: Sequence[Path], of_store: str | None, store: str | None, tokens: BodyTokens) -> Read:
    if logs and of_store is not None:
        raise UsageError("--in is for the requests of the store: leave the LOG or --in out")
    if logs:
        from hitmap.advise.inputs import read_logs

        return read_logs(logs, tokens)
    from hitmap.advise.stored import read_store

    with open_reader(store) as client:
        return read_store(client, of_store or "")


def _tokens(tokenizer: str) -> BodyTokens:
    from hitmap.prompt_tokens import body_tokens

    return body_tokens(tokenizer)
