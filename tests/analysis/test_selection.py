"""What a person writes becomes a parameterised condition, or one clear line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.selection import around, parse_duration, parse_set, parse_time, some_of
from cachemodel.errors import UsageError
from tests.conftest import Database

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LABELS = ["phase", "experiment"]


def parse(text: str):  # type: ignore[no-untyped-def]
    return parse_set(text, now=NOW, labels=LABELS, prefix="a")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("now", NOW),
        ("-90m", NOW - timedelta(minutes=90)),
        ("-1.5d", NOW - timedelta(hours=36)),
        ("-3m30s", NOW - timedelta(seconds=210)),
        ("-1d2h0.5m", NOW - timedelta(days=1, hours=2, seconds=30)),
        ("2026-11-29T10:00", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("2026-11-29T10:00+02:00", datetime(2026, 11, 29, 8, tzinfo=UTC)),
    ],
)
def test_times(text: str, time: datetime) -> None:
    assert parse_time(text, NOW) == time


@given(st.tuples(*(st.one_of(st.none(), st.integers(0, 500)) for _ in range(4))))
def test_a_duration_is_the_sum_of_its_parts(parts: tuple[int | None, ...]) -> None:
    text = "".join(f"{n}{unit}" for n, unit in zip(parts, "dhms", strict=True) if n is not None)
    if not text:
        with pytest.raises(UsageError, match="is no duration"):
            parse_duration(text)
        return
    days, hours, minutes, seconds = (n or 0 for n in parts)
    whole = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(text) == parse_duration(f"-{text}") == whole
    assert parse_time(f"-{text}", NOW) == NOW - whole


@pytest.mark.parametrize("text", ["30s3m", "1m1m", "5", "1h30", "m", "-", "--1h", "1 h", "1h-30m", "1e3s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match="is no duration; write 30s, 90m, 1h30m or 7d"):
        parse_duration(text)


def test_windows_and_conditions_join() -> None:
    found = parse("phase=ts*, prompt_tokens>=100, -2h/-1h")
    assert found.condition == (
        "(labels[{a0n:String}] LIKE {a0:String}) AND (prompt_tokens >= {a1:Float64}) AND "
        "(time >= {a2s:DateTime64(6, 'UTC')} AND time < {a2e:DateTime64(6, 'UTC')})"
    )
    assert found.parameters == {
        "a0n": "phase",
        "a0": "ts%",
        "a1": 100.0,
        "a2s": "2026-11-29 10:00:00.000000",
        "a2e": "2026-11-29 11:00:00.000000",
    }


def test_a_selection_names_the_texts_it_is_about() -> None:
    assert parse("phase=a, server!=b, ttft_us>1, label.experiment=x, -1h/now").texts == (
        *("phase", "server", "label.experiment"),
    )


def test_around_a_deployment() -> None:
    before, after = around(NOW, timedelta(hours=1), "v42")
    assert (before.name, after.name) == ("before v42", "after v42")
    assert before.parameters["befores"] == "2026-11-29 11:00:00.000000"
    assert "server" not in before.condition
    (one, _) = around(NOW, timedelta(hours=1), "v42", "vllm-a")
    assert one.condition.endswith("AND server = {server:String}")
    assert one.parameters["server"] == "vllm-a"
    assert before.parameters["beforee"] == after.parameters["afters"] == "2026-11-29 12:00:00.000000"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one term"),
        ("phase", "neither a window"),
        ("phse=x", "did you mean phase"),
        ("zzz=x", "labels here: experiment, phase"),
        ("prompt_tokens>many", "compared with a number"),
        ("prompt_tokens>nan", "compared with a number"),
        ("prompt_tokens<1e999", "compared with a number"),
        ("phase>x", "is text"),
        ("-1h/-2h", "ends before it begins"),
        ("-1h/soon", "is no time"),
        ("-9999999d/now", "longer than anything is kept"),
        ("-99999999999d/now", "longer than anything is kept"),
        ("1) OR (1=1", "neither a window"),
        (
            "phase=layer=prefill,slowdown=3",
            r"label 'slowdown'; .*; a comma ends a condition: .* phase=layer=prefill\*$",
        ),
        ("phase=a=b*, rest", r"'rest' is neither .*; a comma ends a condition: .* write phase=a=b\*$"),
        ("phase=a,slowdown=3", r"labels here: experiment, phase$"),
    ],
)
def test_errors_name_the_term(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse(text)


def test_of_very_many_labels_the_nearest_are_named() -> None:
    labels = [f"k{number}" for number in range(3000)] + ["tenancy", "x\ny" * 100]
    with pytest.raises(UsageError) as refused:
        parse_set("tnc=x", now=NOW, labels=labels, prefix="a")
    words = str(refused.value)
    assert "did you mean tenancy" in words or "labels here: tenancy, " in words
    assert len(words) < 400
    told = some_of(labels, "tnt")
    assert told.endswith(" and 2,990 more")
    assert "\n" not in some_of(labels[-1:], "q")
    assert len(some_of(labels[-1:], "q")) < 100


HOSTILE = ["x' OR 1=1 --", "x'); DROP TABLE requests; --", "{a0n:String}", "100%_\\", "*"]


@pytest.mark.parametrize("value", HOSTILE)
def test_values_are_only_ever_values(value: str, db: Database) -> None:
    rows = [["r1", {"phase": value.replace("*", "anything")}], ["r2", {"phase": "other%"}]]
    db.client.insert("requests", rows, column_names=["request_id", "labels"])
    found = parse_set(f"phase={value}", now=NOW, labels=LABELS, prefix="a")
    ids = db.client.query(
        f"SELECT request_id FROM requests WHERE {found.condition}", parameters=found.parameters
    )
    assert [r[0] for r in ids.result_rows] == (["r1", "r2"] if value == "*" else ["r1"])


def test_a_set_can_be_asked_again_and_at_another_time() -> None:
    now = datetime(2026, 11, 29, 12, tzinfo=UTC)
    chosen = parse_set(" -2h/-1h , phase=a*", now=now, labels=["phase"], prefix="a")
    assert chosen.asked == "2026-11-29T10:00:00.000000/2026-11-29T11:00:00.000000,phase=a*"
    again = parse_set(chosen.asked, now=now + timedelta(days=9), labels=["phase"], prefix="a")
    assert (again.condition, again.parameters) == (chosen.condition, chosen.parameters)
    before = chosen.at(now - timedelta(days=2), now - timedelta(days=1), "past")
    assert chosen.lasting in before.condition
    assert chosen.lasting == "(labels[{a1n:String}] LIKE {a1:String})"
    assert "{as:" not in before.condition
    assert before.parameters["pasts"] == "2026-11-27 12:00:00.000000"
    always = parse_set("-2h/-1h", now=now, labels=[], prefix="a").at(now, now + timedelta(hours=1), "past")
    assert always.condition.count("time") == 2


def test_a_deployment_can_be_asked_again() -> None:
    moment = datetime(2026, 11, 29, 12, tzinfo=UTC)
    before, _ = around(moment, timedelta(hours=1), "v42", "vllm,a")
    assert before.asked == "2026-11-29T11:00:00.000000/2026-11-29T12:00:00.000000,server=vllm*a"
    assert before.lasting == "server = {server:String}"
