"""Options of `hitmap advise`, by what they are about."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

SAFETIES = ("canonicalise", "move", "drop")
_FILE = click.Path(path_type=Path, dir_okay=False)
F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number in a range, which `nan` is not, though no comparison says so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter."""
        if math.isnan(told := float(super().convert(value, param, ctx))):
            self.fail(f"{value!r} is no number", param, ctx)
        return told


def cache_options(command: F) -> F:
    """Whose prompts, and by whose rules they are found again."""
    return _all(
        command,
        click.option(
            "--in",
            "of_store",
            metavar="SET",
            help="Without a LOG: these requests of the store. [default: the last hour]",
        ),
        click.option(
            "--cache",
            type=click.Choice(["vllm", "sglang", "llama.cpp", "openai", "anthropic"]),
            help="By whose rules prompts are found again. [default: the server's, where a store tells, else vllm]",
        ),
        click.option(
            "--block-size",
            type=click.IntRange(1, 65536),
            help="Tokens of a block or page. [default: 16; sglang 1]",
        ),
        click.option(
            "--set",
            "settings",
            metavar="NAME=VALUE",
            multiple=True,
            help="A limit of the cache: capacity=4096 (blocks of vllm, tokens of sglang), slots=8, minimum=2048 ...",
        ),
        click.option(
            "--tokenizer",
            metavar="PATH|approximate",
            default="approximate",
            show_default=True,
            help="A model's folder or its tokenizer.json.",
        ),
    )


def ci_options(command: F) -> F:
    """What a pipeline reads."""
    return _all(
        command,
        click.option(
            "--check", is_flag=True, help="For CI: exit code 1 when a suggestion is past the budget."
        ),
        click.option(
            "--budget",
            type=Finite(0, 1),
            default=0.05,
            show_default=True,
            help="With --check: the share of computed tokens that a suggestion may save.",
        ),
        click.option(
            "--sarif", "sarif_file", type=_FILE, metavar="FILE", help="Write the suggestions as SARIF 2.1.0."
        ),
        click.option(
            "--junit",
            "junit_file",
            type=_FILE,
            metavar="FILE",
            help="Write them as test cases, which fail past the budget.",
        ),
    )


def rewrite_options(command: F) -> F:
    """Where rules are written, and how they are tried on a server."""
    return _all(
        command,
        click.option(
            "--apply",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="DIR",
            help="Write the rules there: rewriter.py for a gateway, and rules.yaml.",
        ),
        click.option(
            "--safety",
            type=click.Choice(SAFETIES),
            default="move",
            show_default=True,
            help="With --apply and --verify: the riskiest rewrite. drop: the model sees less.",
        ),
        click.option(
            "--verify", "server", metavar="URL", help="Send requests of the log there, as sent and rewritten."
        ),
        click.option(
            "--requests",
            type=click.IntRange(10, 100_000),
            default=60,
            show_default=True,
            help="With --verify: how many of the log, the last ones; each is sent twice.",
        ),
        click.option(
            "--rate",
            type=Finite(0.001, 1000),
            default=5.0,
            show_default=True,
            help="With --verify: requests a second at most.",
        ),
        click.option(
            "--max-seconds",
            type=Finite(1, 86400),
            default=300.0,
            show_default=True,
            help="With --verify: of the whole run.",
        ),
        click.option(
            "--each", is_flag=True, help="With --verify: every suggestion on its own, too, beside all others."
        ),
        click.option(
            "--keep", is_flag=True, help="With --verify: store the result as findings, for the dashboard."
        ),
        click.option(
            "--model", default="", help="With --verify: ask for this model. Default: the server's first."
        ),
        click.option(
            "--api-key", envvar="HITMAP_API_KEY", default="", help="Bearer token (or $HITMAP_API_KEY)."
        ),
    )


def _all(command: F, *options: Callable[[F], F]) -> F:
    """In the order in which --help shows them."""
    for option in reversed(options):
        command = option(command)
    return command
