"""Page Hosts: its figures are those of analysis, its address says which process, and what is not told is said."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from analysis.observed.figures import FIGURES
from analysis.observed.hosts import hosts, lanes
from analysis.observed.watched import Hosts, Lane, Lanes, Watched
from dashboard.charts.hosts import MOST_LINES, small_charts, stacked
from dashboard.export import csv_of_table
from dashboard.views.hosts_tables import as_rows
from tests.analysis.observed.world import HOST, PID, START, put_points, put_request
from tests.conftest import Database
from tests.dashboard.conftest import Served, choose_first_row, serving, settle
from tests.dashboard.drawn import Draw, drawer, said
from tests.dashboard.made import HOSTILE
from tests.dashboard.probed import DAY

BEGIN = round(START.timestamp() * 1e6)
END = BEGIN + 10_000_000
ME = f"{HOST}:{PID}"


def _page() -> None:
    from dashboard.views import hosts

    hosts.page()


@pytest.fixture
def found(store: Database) -> Hosts:
    return hosts(store.client, BEGIN, END)


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    yield from drawer(_page, monkeypatch)


def test_lines_have_the_values_of_the_bins_and_end_with_them(store: Database, found: Hosts) -> None:
    told = lanes(store.client, found.processes, BEGIN, END)
    names = {one.key: one.name for one in found.processes}
    figure = small_charts(told, names, ["major", "cpu"])
    by_figure = {(lane.of, lane.figure): lane for lane in told.lanes}
    lines = {(line.name, line.yaxis): line for line in figure.data}
    mine = lines["python3 (4711)", "y"]
    values = by_figure[(HOST, str(PID), "python3", ""), "major"].values
    assert list(mine.y) == [*values, values[-1], None], "the last step is as wide as the others"
    assert list(mine.x[:2]) == [START, START + timedelta(seconds=1)]
    assert mine.x[-1] == START + timedelta(seconds=10)
    assert {line.line.color for line in figure.data if line.name == "python3 (4711)"} == {mine.line.color}
    assert figure.layout.xaxis2.matches == "x"


def test_what_is_not_told_is_not_bridged() -> None:
    key = ("h", "1", "p", "")
    told = Lanes(BEGIN, 1_000_000, [Lane(key, "major", [1.0, None, None, 4.0, None])])
    (line,) = small_charts(told, {key: "p (1)"}, ["major"]).data
    assert list(zip([round(x.timestamp() * 1e6 - BEGIN) // 10**6 for x in line.x], line.y, strict=True)) == [
        (0, 1.0), (1, 1.0), (1, None), (3, 4.0), (4, 4.0), (4, None),
    ]  # fmt: skip
    assert line.connectgaps is False


def test_one_process_stands_below_its_requests(store: Database, found: Hosts) -> None:
    (mine,) = [one for one in found.processes if one.pid == PID]
    told = lanes(store.client, [mine], BEGIN, END, mine.server)
    figure = stacked(told, mine.key, ["cpu", "major"], mine.server)
    assert [line.name for line in figure.data] == [
        "requests of vllm-a in flight",
        "CPU, cores",
        "Major page faults/s",
    ]
    assert list(figure.data[0].y[:4]) == pytest.approx([0, 0.4, 1, 1])
    assert len({figure.layout[axis].domain for axis in ("xaxis", "xaxis2", "xaxis3")}) == 1
    axes = ("xaxis", "xaxis2", "xaxis3")
    assert len({figure.layout[axis].matches for axis in axes} - {None}) == 1, "zooming one zooms all"


def test_names_of_others_are_text(store: Database, found: Hosts) -> None:
    told = lanes(store.client, found.processes, BEGIN, END)
    figure = small_charts(told, {one.key: one.name for one in found.processes}, ["cpu"])
    assert not any(
        "<script" in (line.name + line.hovertemplate.removesuffix("<extra></extra>")) for line in figure.data
    )


def test_the_page_says_what_analysis_says(store: Database, found: Hosts, draw: Draw) -> None:
    page = draw(store.client, **DAY)
    processes, gpus = (frame.value for frame in page.dataframe)
    assert list(processes["process"]) == [f"{one.executable} ({one.pid})" for one in found.processes]
    assert set(processes["host"]) == {HOST, "node-2"}
    row = processes[processes["host"] == HOST].to_dict("records")[0]
    assert (row["server"], row["port"], row["major/s"], row["shootdowns/s"]) == ("vllm-a", "8000", 30, 50)
    gpu = gpus.to_dict("records")[0]
    assert (gpu["busy"], gpu["memory, MiB"], gpu["PCIe in, MiB/s"]) == (0.5, round(4e10 / 2**20), 477)
    shown = said(page)
    for text in (
        "The probe on node-1 took 0.4 % of a core.",
        "The probe on node-1 lost 12 points",
        "hitmap alerts --from 2026-11-30T12:00:00Z --to 2026-11-30T12:00:10Z",
        "Nothing tells of misses of the CPU's caches (--pmu).",
    ):
        assert text in shown
    assert "--gpu" not in shown, "a GPU is told of"


def test_a_process_of_the_address(store: Database, draw: Draw) -> None:
    page = draw(store.client, **DAY, process=ME)
    assert "python3 (4711) on node-1" in said(page)
    assert page.query_params["process"] in (ME, [ME])
    page = draw(store.client, **DAY, process="<b>:1")
    assert "process=<b>:1 in the address: no such process was watched in this time" in said(page)
    assert "Processes over time" in said(page)
    page = draw(store.client, **DAY, process="node-2:7")
    assert "Whose work it does is not known, so no requests are shown" in said(page)


def test_processes_of_a_server(store: Database, draw: Draw) -> None:
    page = draw(store.client, **DAY, server="vllm-a")
    assert list(page.dataframe[0].value["process"]) == ["python3 (4711)"]
    shown = said(draw(store.client, **DAY, server=HOSTILE))
    assert f"No process is known to work for {HOSTILE}" in shown


def test_files_have_all_figures(found: Hosts) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of_table(as_rows(found)))))
    assert len(rows) == len(found.processes) + len(found.gpus) + len(found.probes)
    (mine,) = [row for row in rows if row["pid"] == str(PID)]
    assert (mine["major"], mine["rss"], mine["dtlb"]) == ("30.0", "2000000000.0", "")
    assert "dtlb_loads" not in mine


def test_of_many_processes_the_first_are_drawn(db: Database, draw: Draw) -> None:
    put_request(db.client, "r", 0, 10)
    for pid in range(1, MOST_LINES + 3):
        put_points(db.client, [(0, 10_000, pid)], "process.cpu.time", {}, pid=pid)
    page = draw(db.client, **DAY)
    assert f"The first {MOST_LINES} of {MOST_LINES + 2} are drawn." in said(page)
    assert len(page.dataframe[0].value) == MOST_LINES + 2


def test_figures_that_are_0_all_the_time_are_named_and_not_drawn(db: Database, draw: Draw) -> None:
    put_points(db.client, [(0, 10_000, 1)], "process.cpu.time", {})
    put_points(db.client, [(0, 10_000, 0)])
    shown = said(draw(db.client, **DAY))
    assert "Counted, and 0 all the time: Major page faults." in shown
    assert (
        "Nothing tells of TLB flushes (--kernel), misses of the CPU's caches (--pmu), GPUs (--gpu)." in shown
    )


def test_without_a_probe_the_page_says_which_command_to_run(db: Database, draw: Draw) -> None:
    page = draw(db.client, **DAY)
    shown = said(page)
    assert "No probe told of a process or a GPU in this time." in shown
    assert "sudo hitmap probe --port 8000" in shown
    assert "Show the last of it" not in [button.label for button in page.button], "there is nowhere to go"


def test_where_probes_told_something_at_another_time_a_button_goes_there(store: Database, draw: Draw) -> None:
    page = draw(store.client, **{"from": "2026-11-01T00:00", "to": "2026-11-01T01:00"})
    assert "The store has what probes told from 2026-11-30 12:00:01 UTC to 2026-11-30 12:00:10 UTC." in said(
        page
    )
    (button,) = [one for one in page.button if one.label == "Show the last of it"]
    button.click().run()
    assert not page.exception
    assert "Processes over time" in said(page)


def test_a_time_that_is_none(store: Database, draw: Draw) -> None:
    assert "'soon' is no time" in said(draw(store.client, **{"from": "soon"}))


def test_labels_are_what_the_tables_explain() -> None:
    assert all(figure.row.meaning and figure.label for figure in FIGURES.values())
    assert Watched("h", 1, "").name == "process (1)"
    assert Watched("h").name == "h"


@pytest.fixture
def served(store: Database) -> Iterator[Served]:
    with serving("hitmap", store.dsn) as running:
        yield running


def test_in_a_browser(served: Served, open_page: Callable[..., object]) -> None:
    """A click on a process shows its lanes, the link says which, and names are text."""
    page = open_page(
        f"{served.address}/hosts?from={DAY['from']}&to={DAY['to']}", "GPUs over time", scheme="dark"
    )
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert ground == "rgb(20, 23, 28)"
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for(state="attached")
    choose_first_row(page, "process=")
    (asked,) = parse_qs(urlsplit(page.url).query)["process"]
    assert asked in (ME, "node-2:7")
    page.get_by_role("button", name="All processes").wait_for()
    assert page.evaluate("window.hit") is None
    assert page.locator("script", has_text="window.hit").count() == 0
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert len(json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["processes"]) == 2
    with page.expect_download() as download:
        page.get_by_role("button", name="HTML", exact=True).click()
    assert "<script>window.hit" not in Path(download.value.path()).read_text(encoding="utf-8")
    page.get_by_role("button", name="All processes").click()
    page.get_by_text("Processes over time").wait_for()
    page.wait_for_function("!location.search.includes('process=')")
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 1280


def test_a_link_to_a_process(served: Served, open_page: Callable[..., object]) -> None:
    sent = f"{served.address}/hosts?from={DAY['from']}&to={DAY['to']}&process={ME}"
    page = open_page(sent, "python3 (4711) on node-1")
    page.get_by_text("Requests in flight", exact=True).wait_for()
    page.get_by_role("link", name="Misses").click()
    page.get_by_role("heading", name="Misses", exact=True).wait_for()
    page.wait_for_function("location.search.includes('from=')")
    assert "process" not in parse_qs(urlsplit(page.url).query)
