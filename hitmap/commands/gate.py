"""`hitmap gate`: a comparison held against budgets, for CI."""

from __future__ import annotations

import difflib
import json
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from cachemodel.errors import UsageError, UserError
from hitmap.commands._compare import Question, progress, question_options
from hitmap.commands._output import emit, output_options
from hitmap.commands._store_option import open_client, store_option

EXCEEDED, UNDECIDED = 1, 3
_FAILED = UserError.exit_code  # which would read as a budget that is exceeded


@click.command()
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    required=True,
    metavar="NAME=MS",
    help="May be given more than once.",
)
@question_options(
    "--against",
    "--a",
    metavar="BASELINE",
    what="The requests to compare with: a SET, or a saved report (JSON), whose B they are.",
)
@output_options
@store_option
@click.pass_context
def command(
    ctx: click.Context,
    budgets: tuple[str, ...],
    question: Question,
    output: str | None,
    as_json: bool,
    file: Path | None,
    store: str | None,
) -> None:
    """May this change go out? Fails when a cause costs more milliseconds than its budget.

    NAME is a cause ("changed", "evicted", "decode speed", "workload", ...), a layer ("queue", "prefill", ...) or
    "total", the change of the quantile itself.

    \b
      hitmap gate --budget changed=20ms --against phase=main --b phase=pr-812
      hitmap gate --budget total=50ms --budget 'decode speed=5ms' --deploy v42 --window 30m --quantile 0.99

    BASELINE may be a saved report, of any two sets: the requests of its B are compared with. It also says which metric
    and quantile; its requests must still be in the store. The first line saves one:

    \b
      hitmap report --a phase=before --b phase=main --quantile 0.99 --json -o main.json
      hitmap gate --budget changed=20ms --against main.json --b phase=pr-812 --format markdown

    \b
    Exit codes:
      0  every budget holds
      1  a budget is exceeded, by a cause that is past the gate: not by chance
      2  the call is wrong
      3  not decided: more than the budget, but not told from chance; too few requests; no requests or no store
    """
    from analysis.report import budget_text
    from analysis.report.budgets import Outcome, decide, parse_budget

    limits = [parse_budget(text) for text in budgets]
    try:
        question = _with_baseline(ctx, question)
        question.check()
        if question.a and question.a == question.b:
            raise UsageError(
                "both sets are the same requests, which decides nothing: name what changed with --b"
            )
        _check_names((limit.name for limit in limits), question)
        with open_client(store) as client, progress() as tell:
            decision = decide(question.compared(client, question.asked(tell)), limits)
        emit(
            decision,
            output,
            as_json,
            file,
            to_terminal=budget_text.to_terminal,
            to_markdown=budget_text.to_markdown,
        )
    except UserError as error:
        if error.exit_code == _FAILED:
            error.exit_code = UNDECIDED
        raise
    except ModuleNotFoundError as error:
        error.exit_code = UNDECIDED  # type: ignore[attr-defined]
        raise
    except click.ClickException:
        raise
    except Exception:  # whatever went wrong here, no budget was exceeded by it
        traceback.print_exc()
        click.echo("hitmap gate failed, which decides nothing: please report it", err=True)
        ctx.exit(UNDECIDED)
    ctx.exit({Outcome.WITHIN: 0, Outcome.EXCEEDED: EXCEEDED, Outcome.UNDECIDED: UNDECIDED}[decision.outcome])


def _check_names(names: Iterable[str], question: Question) -> None:
    """Raises UsageError for a budget of what no report of this question can have, before the work of making one."""
    from analysis.attribution.words import CAUSES
    from analysis.composition import UNATTRIBUTED
    from analysis.report.budgets import TOTAL

    layers = [*_layers(question), UNATTRIBUTED]
    causes = () if question.layers else CAUSES  # only LLM servers are replayed
    known = dict.fromkeys([TOTAL, *causes, *layers])
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name.casefold(), known, 1)
            hint = f"did you mean {close[0]}?" if close else f"budgets are for {', '.join(known)}"
            of = "" if question.layers else f" of {question.metric}"
            raise UsageError(f"nothing{of} is called {name!r} here; {hint}")


def _layers(question: Question) -> list[str]:
    """The names that "where it shows" may have."""
    from analysis.report.metrics import METRICS

    if not question.layers:
        return [layer.name for layer in METRICS[question.metric].layers]
    from analysis.chain.read import read_chain
    from analysis.chain.spans import answered_by

    chain = read_chain(question.layers)
    return [*(layer.name for layer in chain.layers), "workload", *(answered_by(at) for at in chain.answering)]


def _with_baseline(ctx: click.Context, question: Question) -> Question:
    """The question, and where it names a saved report what that says: its B, and what was not asked for otherwise."""
    if not question.a or not (baseline := _saved(question.a)):
        return question
    a, metric, quantile = baseline
    default = click.core.ParameterSource.DEFAULT
    return replace(
        question,
        a=a,
        metric=metric if ctx.get_parameter_source("metric") is default else question.metric,
        quantile=quantile if ctx.get_parameter_source("quantile") is default else question.quantile,
    )


def _saved(against: str) -> tuple[str, str, float | None] | None:
    """Of a saved report or decision its B, metric and quantile; None where `against` is a set. Raises UsageError."""
    from analysis.report.model import SCHEMA

    path = Path(against)
    if path.suffix != ".json" and not path.exists():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        report = told.get("report", told)
        a, metric, quantile = report["b"]["asked"], report["metric"], report["quantile"]
        if not (a and isinstance(a, str) and isinstance(metric, str)) or not 0 < (quantile or 0.5) < 1:
            raise ValueError
    except OSError as error:
        raise UsageError(f"{against} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(
            f"{against} is no saved report: hitmap report ... --json -o {path.name} makes one"
        ) from None
    if report.get("schema") != SCHEMA:
        raise UsageError(
            f"{against} has schema {report.get('schema')}, this hitmap reads {SCHEMA}: save it again"
        )
    return a, metric, quantile
