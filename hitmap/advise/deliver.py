"""Where advice goes besides the screen: files of rules, files for CI, and a live server that is asked if it is so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from analysis.advisor.advice import Advice
from analysis.advisor.export import Export, module, rules_yaml
from analysis.advisor.key import key_of
from analysis.advisor.report import AdviceReport
from analysis.advisor.rewriting.rules import Rule as RewriteRule
from analysis.advisor.suggest import Suggestion
from analysis.advisor.text import where
from analysis.prefix_replay.rules import Rule
from cachemodel.errors import UserError
from cachemodel.printable import printable
from cachemodel.prompts.model import Prompt
from collector.canary import HttpTransport
from hitmap.advise.files import write_all
from hitmap.advise.junit import junit
from hitmap.advise.places import Place
from hitmap.advise.sarif import sarif
from hitmap.advise.verify import Bounds, Verified, verify
from hitmap.advise.view import VerifiedOne
from hitmap.prompt_tokens import BodyTokens


def write_for_ci(
    advice: Advice,
    told: AdviceReport,
    places: Mapping[str, Place],
    budget: float,
    sarif_file: Path | None,
    junit_file: Path | None,
) -> None:
    """Those of the files that are wanted. Raises UserError."""
    texts = {}
    if sarif_file:
        texts[sarif_file] = sarif(advice.suggestions, places, budget=budget, version=version("hitmap"))
    if junit_file:
        texts[junit_file] = junit(told.suggestions, budget)
    write_all(texts)


def write_rules(export: Export, advice: Advice, folder: Path) -> None:
    """rewriter.py and rules.yaml; what is left out of them is said. Raises UserError."""
    by = f"hitmap {version('hitmap')}"
    data = rules_yaml(export, cache=advice.cache, tokens_by=advice.tokens_by, by=by)
    write_all({folder / "rewriter.py": module(export), folder / "rules.yaml": data})
    count = len(export.rules)
    click.echo(f"{count} rule{'s' * (count != 1)} in {folder / 'rewriter.py'}", err=True)
    for one in export.left:
        about = f"{one.slot.cause.value} at {one.slot.path}: --safety {one.remedy.safety.value} takes it in"
        click.echo(f"left out, with what it hides: {printable(about, lines=False)}", err=True)


def verified(
    url: str,
    api_key: str,
    model: str,
    prompts: Sequence[Prompt],
    export: Export,
    tokens: BodyTokens,
    rule: Rule,
    bounds: Bounds,
    *,
    each: bool = False,
) -> tuple[Verified, list[VerifiedOne]]:
    """What the server says of all rules together and, where each is wanted, of every suggestion's beside the others;
    with a bar meanwhile. Raises UserError."""
    if not export.rules:
        raise UserError(f"nothing to verify: no suggestion has rules of --safety {export.most.value}")
    shown = (
        TextColumn("verifying {task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    transport = HttpTransport(url, api_key)
    with Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def run(what: str, in_place: Sequence[RewriteRule] = ()) -> Verified:
            bar.update(task, description=what)
            return verify(
                transport,
                url,
                prompts,
                export.rules,
                tokens,
                rule,
                bounds,
                in_place=in_place,
                model=model,
                progress=lambda done, of: bar.update(task, completed=done, total=of),
            )

        try:
            together = run("all of it")
            if len(export.taken) == 1:  # it is all there is
                return together, [_one(export.taken[0], together)]
            alone = export.taken if each else ()
            return together, [_one(one, run(one.slot.cause.value, _others(export, one))) for one in alone]
        finally:
            transport.close()


def _others(export: Export, one: Suggestion) -> list[RewriteRule]:
    return [rule for other in export.taken if other is not one for rule in other.rules]


def _one(one: Suggestion, verified: Verified) -> VerifiedOne:
    return VerifiedOne(key_of(one), one.slot.cause.value, one.slot.path, verified, where(one.slot))
