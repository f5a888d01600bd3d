"""`hitmap alerts` as a person or a cron job calls it: a store, a command line, a receiver on a real socket."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from analysis.alerts.alertmanager import Event
from analysis.alerts.model import Alert, Report, Verdict
from analysis.alerts.table import rules
from cachemodel.errors import UsageError, UserError
from hitmap.alerts.watch import Watch
from hitmap.alerts.webhook import MOST_EVENTS, NotDelivered, Webhook
from hitmap.commands.alerts import command
from store.embedded import Embedded
from tests.analysis.alerts import planted
from tests.analysis.alerts.planted import second
from tests.databases import Database, Databases

RANGE = ("--from", "2026-11-29T12:00", "--to", "2026-11-29T12:01")
RATIO = rules()[0]
TOKEN = "s3cr3t-token"


@pytest.fixture(scope="module")
def dsn(databases: Databases) -> Iterator[str]:
    """Server blue loses its hits for six seconds, green does not."""
    with databases.migrated() as database:
        planted.requests(database.client, "blue", [0.95, 0.95, 0.4, 0.3, 0.4, 0.4, 0.4, 0.4, 0.95])
        planted.requests(database.client, "green", [0.95] * 9)
        yield database.dsn


def alerts(dsn: str, *arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(command, ["--store", dsn, *arguments], env=environment)


def test_what_fired_is_shown_and_the_exit_code_is_one(dsn: str) -> None:
    shown = alerts(dsn, *RANGE, COLUMNS="160")
    assert shown.exit_code == 1, shown.output
    flat = " ".join(shown.output.split())
    assert flat.startswith("1 alert from 2026-11-29 12:00:00 to 2026-11-29 12:01:00")
    assert "hit-ratio-low server blue 2026-11-29 12:00:02 12:00:08, resolved 0.300 < 0.850 6 x 1 s" in flat
    assert "hitmap misses 2026-11-29T12:00:02/2026-11-29T12:00:08,server=blue" in flat
    assert "tensor-miss-ratio-high: no data: it takes hits and misses by kernel; CUPTI in the process" in flat


def test_json_has_the_same(dsn: str) -> None:
    shown = alerts(dsn, *RANGE, "--json")
    (alert,) = json.loads(shown.output)["alerts"]
    assert (alert["labels"], alert["windows"], alert["worst"]) == ({"server": "blue"}, 6, 0.3)
    assert shown.exit_code == 1


def test_exit_codes_tell_an_alert_from_none_and_from_not_decided(dsn: str, tmp_path: Path) -> None:
    assert alerts(dsn, *RANGE, "--set", "hit-ratio-low.threshold=0.2").exit_code == 0
    assert alerts(dsn, *RANGE, "--rule", "kv-thrash").exit_code == 3
    assert alerts(dsn, "--from", "2020-01-01", "--to", "2020-01-02").exit_code == 3
    broken = tmp_path / "broken.yaml"
    broken.write_text("- id: kv-thrash\n  sql: SELECT nothing\n")
    shown = alerts(dsn, *RANGE, "--rules", str(broken), "--set", "hit-ratio-low.threshold=0.2")
    assert shown.exit_code == 3
    assert "kv-thrash: not answered: " in shown.output
    assert alerts(dsn, *RANGE, "--rules", str(broken)).exit_code == 1


def test_a_reader_may_ask_every_rule(dsn: str, store_server: Embedded) -> None:
    """By the door of an embedded store that is for those who may not write."""
    door = store_server.reader_dsn.rpartition("/")[0]
    shown = alerts(f"{door}/{dsn.rpartition('/')[2]}", *RANGE, "--json")
    told = json.loads(shown.output)
    assert [rule["error"] for rule in told["rules"]] == [None] * len(rules())
    (alert,) = told["alerts"]
    assert "hitmap trace blue-3-0" in alert["look"]
    assert shown.exit_code == 1


def test_the_embedded_store_is_asked_by_default() -> None:
    shown = CliRunner().invoke(command, ["--json"])
    assert all(rule["no_data"] for rule in json.loads(shown.output)["rules"])
    assert shown.exit_code == 3


def test_no_store_decides_nothing() -> None:
    shown = alerts("http://127.0.0.1:9/none", *RANGE)
    assert isinstance(shown.exception, UserError)
    assert shown.exception.exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--last", "1h", "--from", "-2h"), "--last is until now"),
        (("--last", "0s"), "less than a second"),
        (("--last", "soon"), "no duration"),
        (("--from", "now", "--to", "-1h"), "not before"),
        (("--rule", "hit-ratio"), "there is no rule 'hit-ratio'"),
        (("--set", "hit-ratio-low.threshold=x"), "must be a number"),
        (("--rules", "/none.yaml"), "No such file"),
        (("--watch", "5", "--from", "-1h"), "--watch looks at the time until now"),
        (("--webhook", "ftp://x"), "--webhook takes a URL"),
        (("--webhook", "http://user:pw@127.0.0.1/x"), "no user or password"),
        (("--rule", "kv-thrash", "--set", "kv-thrash.enabled=false"), "no rule is enabled"),
    ],
)
def test_a_wrong_call_is_refused_with_what_to_do(dsn: str, arguments: tuple[str, ...], said: str) -> None:
    shown = alerts(dsn, *arguments)
    assert isinstance(shown.exception, UsageError), shown.output
    assert shown.exception.exit_code == 2
    assert said in str(shown.exception)
    assert ":pw" not in str(shown.exception)


def test_an_error_of_ours_is_no_alert(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("analysis.alerts.evaluate.evaluate", lambda *_, **__: 1 / 0)
    shown = alerts(dsn, *RANGE)
    assert shown.exit_code == 3
    assert "decides nothing" in shown.output


def test_the_prometheus_file_needs_no_store_and_follows_the_settings() -> None:
    shown = CliRunner().invoke(
        command, ["--prometheus", "--set", "kv-usage-high.threshold=0.5", "--store", "http://none"]
    )
    said = {rule["alert"]: rule for rule in yaml.safe_load(shown.output)["groups"][0]["rules"]}
    assert said["kv-usage-high"]["expr"].rstrip().endswith("> 0.5")
    assert shown.exit_code == 0


@dataclass
class Receiver:
    """A webhook's receiver: answers with these statuses, one a request, then with 200. got: (path, headers, body)."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook/{TOKEN}"

    @property
    def told(self) -> list[tuple[str, str]]:
        """(status, server) of all alerts that were taken."""
        return [(a["status"], a["labels"]["server"]) for _, _, body in self.got for a in body["alerts"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status = made.answers.pop(0) if made.answers else 200
            if status == 200:
                made.got.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(status)
            if status == 302:
                self.send_header("location", f"http://127.0.0.1:{made.port}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def test_what_fired_is_posted_with_the_token(dsn: str, receiver: Receiver) -> None:
    shown = alerts(dsn, *RANGE, "--webhook", receiver.url, HITMAP_WEBHOOK_TOKEN=TOKEN)
    assert shown.exit_code == 1
    ((path, headers, body),) = receiver.got
    assert path == f"/hook/{TOKEN}"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    assert [(a["labels"]["alertname"], a["status"]) for a in body["alerts"]] == [
        ("hit-ratio-low", "resolved")
    ]
    assert TOKEN not in shown.output


def test_nothing_is_posted_where_nothing_fired(dsn: str, receiver: Receiver) -> None:
    alerts(dsn, *RANGE, "--webhook", receiver.url, "--set", "hit-ratio-low.threshold=0.2")
    assert receiver.got == []


def test_a_receiver_that_refuses_decides_nothing_and_its_secret_is_not_told(
    dsn: str, receiver: Receiver
) -> None:
    receiver.answers = [403]
    shown = alerts(dsn, *RANGE, "--webhook", receiver.url, HITMAP_WEBHOOK_TOKEN=TOKEN)
    assert isinstance(shown.exception, NotDelivered)
    assert shown.exception.exit_code == 3
    assert str(shown.exception) == (
        f"the webhook at http://127.0.0.1:{receiver.port} did not take the alerts: it answers 403"
    )
    assert TOKEN not in shown.output
    assert "hit-ratio-low" in shown.output  # what was found is shown all the same


def fired(server: str = "blue", begin: float = 0, end: float = 10, state: str = "firing") -> Alert:
    return Alert(RATIO, {"server": server}, second(begin), second(end), 0.1, second(begin), 5, 9, state)  # type: ignore[arg-type]


def told(url: str, **options: Any) -> Webhook:
    return Webhook(url, TOKEN, **{"waits_s": (0.01, 0.01), **options})


def test_a_receiver_that_is_busy_is_tried_again_a_few_times_only(receiver: Receiver) -> None:
    receiver.answers = [503, 429]
    told(receiver.url).tell([Event("firing", fired())])
    assert receiver.told == [("firing", "blue")]
    receiver.answers = [500, 500, 500, 200]
    with pytest.raises(NotDelivered, match="it answers 500"):
        told(receiver.url).tell([Event("firing", fired())])
    assert receiver.answers == [200]


def test_a_refusal_is_not_tried_again_and_a_redirect_not_followed(receiver: Receiver) -> None:
    for status in (400, 302):
        receiver.answers = [status, 200]
        with pytest.raises(NotDelivered, match=f"it answers {status}"):
            told(receiver.url).tell([Event("firing", fired())])
        assert receiver.answers == [200]
    assert receiver.got == []


def test_no_proxy_is_asked_for_a_receiver_on_this_machine(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    told(receiver.url).tell([Event("firing", fired())])
    assert receiver.told == [("firing", "blue")]


def test_nobody_there_and_a_receiver_that_never_answers(receiver: Receiver) -> None:
    import socket

    with pytest.raises(NotDelivered, match="Connection refused"):
        told("http://127.0.0.1:9/").tell([Event("firing", fired())])
    with socket.create_server(("127.0.0.1", 0)) as mute:
        began = time.monotonic()
        with pytest.raises(NotDelivered):
            told(f"http://127.0.0.1:{mute.getsockname()[1]}/", timeout_s=0.2).tell([Event("firing", fired())])
        assert time.monotonic() - began < 30


def test_many_events_go_in_messages_of_a_bounded_size(receiver: Receiver) -> None:
    told(receiver.url).tell([Event("firing", fired(str(n))) for n in range(MOST_EVENTS + 1)])
    assert [len(body["alerts"]) for _, _, body in receiver.got] == [MOST_EVENTS, 1]


def test_a_token_with_a_line_break_is_refused_and_none_is_in_a_repr() -> None:
    with pytest.raises(UsageError, match="control characters"):
        Webhook("http://127.0.0.1/", "a\nb: c")
    assert TOKEN not in repr(Webhook(f"http://127.0.0.1/{TOKEN}", TOKEN))


def look(watch: Watch, *found: Alert, begin: float = -600, error: str = "") -> list[tuple[str, str, bool]]:
    """One look: (status, server, has a note)."""
    report = Report(second(begin), second(begin + 900), (Verdict(RATIO, found, error=error),))
    events = watch.news(report)
    watch.heard(report, events)
    return [(event.status, event.alert.labels["server"], bool(event.note)) for event in events]


def test_an_alert_is_told_once_when_it_fires_and_once_when_it_is_over() -> None:
    watch = Watch()
    assert look(watch, fired()) == [("firing", "blue", False)]
    assert look(watch, fired(end=20)) == []
    assert look(watch, fired(end=30, state="no data")) == []
    assert look(watch, fired(end=30, state="resolved"), fired("green")) == [
        ("resolved", "blue", False),
        ("firing", "green", False),
    ]
    assert look(watch, fired(end=30, state="resolved"), fired("green")) == []
    assert look(watch, fired(end=30, state="resolved"), fired(begin=50, end=60), fired("green")) == [
        ("firing", "blue", False)
    ]


def test_what_was_over_before_the_watch_began_is_no_news() -> None:
    watch = Watch()
    assert look(watch, fired(state="resolved")) == []
    assert look(watch, fired(state="resolved")) == []


def test_an_alert_that_came_and_went_between_two_looks_is_told_then_over() -> None:
    watch = Watch()
    assert look(watch) == []
    assert look(watch, fired(state="resolved")) == [("firing", "blue", False)]
    assert look(watch, fired(state="resolved")) == [("resolved", "blue", False)]
    assert look(watch, fired(state="resolved")) == []


def test_what_falls_out_of_sight_is_over_with_a_note_unless_the_store_was_silent() -> None:
    watch = Watch()
    look(watch, fired())
    assert look(watch, error="no answer") == []
    assert look(watch) == [("resolved", "blue", True)]
    assert look(watch) == []


def test_what_was_not_heard_is_news_again() -> None:
    watch = Watch()
    report = Report(second(0), second(60), (Verdict(RATIO, (fired(),)),))
    assert watch.news(report) == watch.news(report) != []


@pytest.fixture
def live(db: Database) -> Callable[[float, float], None]:
    """Puts requests of server blue with this hit ratio into the last seconds before now."""

    def put(ratio: float, seconds: float) -> None:
        now = datetime.now(UTC).replace(microsecond=0)
        columns = ["time", "server", "request_id", "span_id", "prompt_tokens", "cached_tokens"]
        rows = [
            [now - timedelta(seconds=n), "blue", f"{now}-{n}", n + 1, 2000, round(2000 * ratio)]
            for n in range(1, int(seconds) + 1)
        ]
        db.client.insert("requests", rows, column_names=columns)

    return put


def until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_watching_tells_what_fires_and_what_is_over_and_ends_on_a_signal(
    db: Database, live: Callable[[float, float], None], receiver: Receiver
) -> None:
    """A real process; its first delivery fails, which it says, without the secret, and tries again."""
    live(0.2, 10)
    receiver.answers = [503, 503, 503]
    call = "from hitmap.commands.alerts import command; command()"
    arguments = [
        "--store",
        db.dsn,
        "--watch",
        "1",
        "--last",
        "2m",
        "--webhook",
        receiver.url,
        "--rule",
        "hit-ratio-low",
    ]
    options = ["--set", "hit-ratio-low.delay=0", "--set", "hit-ratio-low.gap=60", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", call, *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: receiver.told == [("firing", "blue")])
        time.sleep(2.5)  # two rounds in which it still fires
        assert receiver.told == [("firing", "blue")]
        live(1.0, 2)
        until(lambda: receiver.told == [("firing", "blue"), ("resolved", "blue")])
    finally:
        process.terminate()
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["event"], line["rule"], line["labels"]) for line in lines] == [
        ("firing", "hit-ratio-low", {"server": "blue"}),
        ("resolved", "hit-ratio-low", {"server": "blue"}),
    ]
    assert "it answers 503; tried again" in err
    assert err.count("did not take") == 1
    assert TOKEN not in out + err


def test_an_alert_is_said_once_while_nobody_takes_it(
    db: Database, live: Callable[[float, float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    from hitmap.alerts.rounds import Rounds
    from hitmap.commands._store_option import open_reader

    live(0.2, 10)
    asked, stopping = [], threading.Event()

    class Deaf(Webhook):
        def __init__(self) -> None:
            pass

        def tell(self, events: Any, stopping: threading.Event) -> None:
            asked.append([event.status for event in events])
            raise NotDelivered("the webhook did not take the alerts")

    table = [replace(RATIO, delay_s=0)]
    rounds = Rounds(lambda: open_reader(db.dsn), table, timedelta(minutes=2), 0.2, Deaf(), False)
    thread = threading.Thread(target=rounds.run, args=(stopping,))
    thread.start()
    until(lambda: len(asked) >= 3)
    stopping.set()
    thread.join(30)
    told = capsys.readouterr()
    assert told.out.count("firing: warning") == 1
    assert told.err.count("did not take") == 1


def test_watching_outlives_a_store_that_goes_away_for_a_while(
    databases: Databases, capsys: pytest.CaptureFixture[str]
) -> None:
    from hitmap.alerts.rounds import Rounds
    from hitmap.commands._store_option import open_reader

    opened = []
    with databases.migrated() as database:

        def open_store() -> Any:
            opened.append(len(opened))
            return open_reader("http://127.0.0.1:9/none" if len(opened) == 2 else database.dsn)

        stopping = threading.Event()
        rounds = Rounds(open_store, [replace(RATIO, delay_s=0)], timedelta(minutes=1), 0.2, None, False)
        thread = threading.Thread(target=rounds.run, args=(stopping,))
        thread.start()
        until(lambda: rounds._looked)
        database.client.command("RENAME TABLE servers TO gone")
        until(lambda: len(opened) >= 3)
        database.client.command("RENAME TABLE gone TO servers")
        until(lambda: rounds._said == "")
        stopping.set()
        thread.join(30)
        assert not thread.is_alive()
    assert "hitmap alerts: not looked: " in capsys.readouterr().err


def test_a_store_that_is_not_there_at_the_start_ends_the_watch() -> None:
    shown = alerts("http://127.0.0.1:9/none", "--watch", "1")
    assert isinstance(shown.exception, UserError)
    assert shown.exception.exit_code == 3
