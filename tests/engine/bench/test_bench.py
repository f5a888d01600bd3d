"""The engine's benchmark measures what it says; what the figures are is this machine's affair."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from rich.progress import Progress

from cachemodel.errors import UserError
from collector.prometheus import parse
from engine.bench import main, overhead
from engine.bench.mix import Mix, Throughput, mix_for
from engine.bench.overhead import Overhead
from engine.bench.report import Report, print_report
from engine.bench.running import Running, Spread
from engine.bench.tiers import SOURCES, AtLength, Tiers, break_even, lengths_for
from tests.engine.core.tiny import loaded, settings

CONFIG = settings(device_blocks=64, max_num_batched_tokens=64)


def flat(value: float) -> Spread:
    return Spread.of([value])


def at(tokens: int, computed: float, host: float) -> AtLength:
    return AtLength(tokens, flat(computed), flat(0.0), flat(host), flat(9.0))


@pytest.mark.parametrize(
    ("points", "tokens"),
    [
        ([at(10, 1, 3), at(20, 4, 2)], 15),  # two behind at 10, two ahead at 20
        ([at(10, 1, 3), at(20, 4, 2), at(40, 1, 2), at(80, 3, 2)], 60),  # only what holds from there on
        ([at(10, 2, 1), at(20, 4, 2)], 10),
        ([at(10, 2, 1), at(20, 4, 5)], None),
        ([at(10, 2, 2), at(20, 4, 3)], 10),
    ],
)
def test_loading_breaks_even_where_it_begins_to_win_for_good(
    points: list[AtLength], tokens: float | None
) -> None:
    assert break_even(points, "host") == tokens


def test_a_spread_is_median_lowest_highest() -> None:
    assert Spread.of([5, 1, 2]) == Spread(2, 1, 5, 3)


def test_lengths_are_those_that_the_settings_allow() -> None:
    assert lengths_for(replace(CONFIG, max_model_len=200), longest=1000) == (32, 64, 128, 199)
    assert lengths_for(replace(CONFIG, device_blocks=25), longest=1000) == (32, 64, 100)
    assert lengths_for(CONFIG, longest=40) == (32, 40)


@pytest.mark.parametrize("changes", [{"prefix_caching": False}, {"max_model_len": 5}])
def test_settings_without_hits_leave_nothing_to_measure(changes: dict[str, int]) -> None:
    with pytest.raises(UserError, match="no hits to measure"):
        lengths_for(replace(CONFIG, **changes), longest=1000)


def test_the_mix_is_what_it_says_and_fits() -> None:
    mix = mix_for(replace(CONFIG, max_model_len=2**20, device_blocks=2**20), requests=20)
    assert (mix.requests, mix.system_tokens, mix.own_tokens, mix.max_tokens) == (20, 192, 64, 32)
    small = mix_for(CONFIG, requests=20)
    with Running(CONFIG, loaded()) as running:
        asked = small.draw(running, seed=3)
        assert asked == small.draw(running, seed=3) != small.draw(running, seed=4)
    assert {len(one.prompt) + one.max_tokens for one in asked} == {144}  # half of 288, into 256
    assert len({tuple(one.prompt[:96]) for one in asked}) == 4
    assert len({tuple(one.prompt) for one in asked}) == 20


def test_everything_is_measured_and_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.bench.load", lambda config: loaded())
    main(quick=True, as_json=True, config=replace(CONFIG, max_model_len=80))
    report = json.loads(capsys.readouterr().out)
    lengths = report["tiers"]["lengths"]
    assert [point.pop("tokens") for point in lengths] == [32, 64, 79]
    assert {*lengths[0]} == {f"{source}_ms" for source in SOURCES}
    for spread in (spread for point in lengths for spread in point.values()):
        assert 0 < spread["low"] <= spread["median"] <= spread["high"]
        assert spread["rounds"] == 2
    throughput, mix = report["throughput"], report["throughput"]["mix"]
    a_request = throughput["prompt_tokens_per_s"]["median"] / throughput["requests_per_s"]["median"]
    assert a_request == pytest.approx(mix["system_tokens"] + mix["own_tokens"])
    assert 0 <= throughput["cached_share"]["high"] < mix["system_tokens"] / a_request
    overhead = report["overhead"]
    assert (overhead["lost_share"]["rounds"], overhead["noise_share"]["rounds"]) == (8, 4)
    assert 0 < overhead["cpu_share"]["median"] < 1
    assert (
        report["kv_bytes_per_token"] == 2 * 2 * 2 * 4 * 4
    )  # key and value, layers, heads, head size, float32
    assert report["device"] == "cpu"
    assert report["parameters"] == 2 * 67 * 16 + 16 + 2 * (2 * 16 + 16 * 32 + 16 * 16 + 3 * 16 * 24)


def test_telemetry_has_sent_all_that_it_is_charged_for(monkeypatch: pytest.MonkeyPatch) -> None:
    unsent, read = [], overhead._Clocked.cpu_s

    def spy(clocked: overhead._Clocked) -> float:
        ended, traces = (
            sum(
                sample.value
                for sample in parse(clocked._telemetry.exposition()).samples
                if sample.name == name
            )
            for name in ("hitmap_engine_requests_finished_total", "hitmap_engine_traces_total")
        )
        unsent.append(ended - traces)
        return read(clocked)

    monkeypatch.setattr(overhead._Clocked, "cpu_s", spy)
    overhead.measure_overhead(CONFIG, loaded(), Mix(4, 1, 8, 4, 2), 2, Progress(disable=True))
    assert unsent == [0] * 5  # before the warming up, and before and after each round


@pytest.mark.parametrize(
    ("lost", "noise", "says"),
    [(0.01, 0.001, "reached"), (0.03, 0.001, "missed"), (0.01, 0.03, "this machine is too noisy to tell")],
)
def test_the_printed_report_says_whether_the_goal_is_reached(lost: float, noise: float, says: str) -> None:
    tiers = Tiers((at(10, 1, 3), at(20, 4, 2)), 15, None)
    throughput = Throughput(Mix(2, 1, 8, 4, 2), *(flat(figure) for figure in (5, 60, 10, 0.25)))
    overhead = Overhead(flat(lost), flat(noise), flat(0.004))
    written = io.StringIO()
    print_report(Report.of(CONFIG, loaded(), tiers, throughput, overhead), Console(file=written, width=100))
    text = written.getvalue()
    assert "loading from the host beats computing from about 15 tokens on" in text
    assert "loading from the disk does not beat computing up to 20 tokens" in text
    assert "2 requests at once: one of 1 beginnings of 8 tokens, 4 of their own, 2 generated" in text
    assert "25.0 (25.0 to 25.0)" in text
    assert f"goal, below 2% of throughput: {says}" in text
