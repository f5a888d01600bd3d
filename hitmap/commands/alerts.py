"""`hitmap alerts`: which thresholds were breached, by whom, and what explains it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from cachemodel.errors import UsageError, UserError
from hitmap.commands._store_option import open_reader, store_option

if TYPE_CHECKING:
    from analysis.alerts.model import Report, Rule
    from hitmap.alerts.webhook import Webhook

FIRED, UNDECIDED = 1, 3
_FAILED = UserError.exit_code  # which would read as an alert


@click.command()
@click.option("--from", "begin", metavar="TIME", help="From when on.  [default: an hour before --to]")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="Until when.")
@click.option("--last", metavar="DURATION", help="Instead: until now, such as 15m or 1h.")
@click.option(
    "--rules",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="HITMAP_ALERT_RULES",
    help="Rules of your own (YAML): an entry with a known id changes the fields it names. Or $HITMAP_ALERT_RULES.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="RULE.FIELD=VALUE",
    help="Change one field, such as hit-ratio-low.threshold=0.7. May be given more than once.",
)
@click.option(
    "--rule", "only", multiple=True, metavar="RULE", help="Ask this rule only. May be given more than once."
)
@click.option("--watch", "every_s", type=click.FloatRange(1, 86_400), metavar="SECONDS", help="Keep looking.")
@click.option(
    "--webhook",
    "url",
    metavar="URL",
    help="Post what fired, in the form of Alertmanager's webhook; $HITMAP_WEBHOOK_TOKEN is sent as a bearer token.",
)
@click.option(
    "--prometheus", is_flag=True, help="Print the rules as a Prometheus alerting-rules file instead."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON; with --watch a line for each change.")
@store_option
@click.pass_context
def command(
    ctx: click.Context,
    begin: str | None,
    end: str,
    last: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    every_s: float | None,
    url: str | None,
    prometheus: bool,
    as_json: bool,
    store: str | None,
) -> None:
    """Which thresholds were breached, when, by whom, and what explains it?

    Hit ratio, KV usage, thrash, silent KV-event publishers, preemptions, queues; page faults, TLB shootdowns and tensor
    kernels where probes run. A rule without data says so: that is no all-clear.

    \b
      hitmap alerts
      hitmap alerts --last 15m --set hit-ratio-low.threshold=0.7
      hitmap alerts --from 2026-11-29T10:00 --to 2026-11-29T11:00 --json
      hitmap alerts --watch 10 --webhook http://127.0.0.1:9094/hook
      hitmap alerts --prometheus > hitmap-rules.yml

    docs/alerts.md has the rules and how to write one.

    \b
    Exit codes:
      0  no alert
      1  an alert fired, be it over by now
      2  the call or a rule is wrong
      3  not decided: no rule had data, one could not be asked, the webhook did not take it, no store
    """
    with _own_exit_codes(ctx):
        from analysis.alerts.prometheus import to_prometheus

        table = _table(file, settings, only)
        if prometheus:
            click.echo(to_prometheus(table), nl=False)
            return
        webhook = _webhook(url)
        if every_s:
            if begin or end != "now":
                raise UsageError("--watch looks at the time until now: say how much with --last")
            _watch(store, table, _length(last or "15m"), every_s, webhook, as_json)
            return
        ctx.exit(_look(store, table, _range(begin, end, last), webhook, as_json))


def _look(
    store: str | None,
    table: tuple[Rule, ...],
    span: tuple[datetime, datetime],
    webhook: Webhook | None,
    as_json: bool,
) -> int:
    """One look; the exit code."""
    from analysis.alerts.alertmanager import Event
    from analysis.alerts.evaluate import evaluate
    from analysis.alerts.json import to_json
    from analysis.alerts.text import to_terminal

    with open_reader(store) as client:
        report = evaluate(client, *span, table)
    if as_json:
        click.echo(to_json(report))
    else:
        to_terminal(report, Console(highlight=False))
    if webhook:
        webhook.tell([Event("resolved" if a.state == "resolved" else "firing", a) for a in report.alerts])
    return _code(report)


def _code(report: Report) -> int:
    if report.alerts:
        return FIRED
    return 0 if report.judged else UNDECIDED


def _watch(
    store: str | None,
    table: tuple[Rule, ...],
    last: timedelta,
    every_s: float,
    webhook: Webhook | None,
    as_json: bool,
) -> None:
    """Look again and again until interrupted. A store or receiver that does not answer for a while ends nothing."""
    from hitmap.alerts.rounds import Rounds
    from hitmap.signals import stopped_by_signals

    with stopped_by_signals() as stopping:
        Rounds(lambda: open_reader(store), table, last, every_s, webhook, as_json).run(stopping)


def _table(file: Path | None, settings: tuple[str, ...], only: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules to ask."""
    from analysis.alerts.table import rules, with_file, with_settings

    table = with_settings(with_file(rules(), file) if file else rules(), settings)
    known = [rule.id for rule in table]
    if unknown := [id for id in only if id not in known]:
        raise UsageError(f"there is no rule {unknown[0]!r}; there are {', '.join(known)}")
    asked = tuple(rule for rule in table if rule.enabled and (not only or rule.id in only))
    if not asked:
        raise UsageError("no rule is enabled: there is nothing to ask")
    return asked


def _range(begin: str | None, end: str, last: str | None) -> tuple[datetime, datetime]:
    from analysis.selection import parse_time

    now = datetime.now(UTC)
    if last:
        if begin or end != "now":
            raise UsageError("--last is until now: give it, or --from and --to")
        return now - _length(last), now
    until = parse_time(end, now)
    since = parse_time(begin, now) if begin else until - timedelta(hours=1)
    if since >= until:
        raise UsageError(f"--from {begin} is not before --to {end}")
    return since, until


def _length(text: str) -> timedelta:
    from analysis.selection import parse_duration

    if (length := abs(parse_duration(text))) < timedelta(seconds=1):
        raise UsageError(f"--last {text} is less than a second")
    return length


def _webhook(url: str | None) -> Webhook | None:
    import os

    from hitmap.alerts.webhook import Webhook

    return Webhook(url, os.environ.get("HITMAP_WEBHOOK_TOKEN", "")) if url is not None else None


@contextmanager
def _own_exit_codes(ctx: click.Context) -> Iterator[None]:
    """Whatever goes wrong is no alert: it leaves with another code than one."""
    try:
        yield
    except UserError as error:
        if error.exit_code == _FAILED:
            error.exit_code = UNDECIDED
        raise
    except ModuleNotFoundError as error:
        error.exit_code = UNDECIDED  # type: ignore[attr-defined]
        raise
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise
    except Exception:
        traceback.print_exc()
        click.echo("hitmap alerts failed, which decides nothing: please report it", err=True)
        ctx.exit(UNDECIDED)
