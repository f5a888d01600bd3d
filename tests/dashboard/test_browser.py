"""What a person sees: real pages in a real browser, compared with the report they are drawn from."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import TimeoutError as Late

from analysis.misses.report_model import MissReport
from dashboard import words
from tests.dashboard.conftest import Served, settle, text_of
from tests.dashboard.made import HOSTILE, build
from tests.dashboard.test_colours import contrast

Open = Callable[..., object]
HOUR = "from=2026-11-29T12:00&to=2026-11-29T13:00"
WHOLE = "From KV events alone"  # the heading of the last part that every report has


def tiles(page) -> dict[str, str]:  # type: ignore[no-untyped-def]
    """The figures at the top by name."""
    page.get_by_test_id("stMetric").nth(5).wait_for()
    settle(page)
    found = page.get_by_test_id("stMetric").all()
    return {
        tile.get_by_test_id("stMetricLabel").inner_text(): tile.get_by_test_id("stMetricValue").inner_text()
        for tile in found
    }


def figures(report: MissReport) -> dict[str, str]:
    attainable, reachable, prompts = words.ceiling_sums(report)
    return {
        "Served": words.served(report.total),
        "Attainable": words.share(attainable, prompts),
        "Reachable": words.share(reachable, prompts),
        "Computed": words.tokens(words.computed(report.total)),
        "Unknown": words.share(report.total.parts.get("unknown", 0), words.computed(report.total)),
        "Requests": words.tokens(report.total.requests),
    }


def saved(page, name: str) -> str:  # type: ignore[no-untyped-def]
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    return Path(download.value.path()).read_text(encoding="utf-8")


def assert_legible(page, scheme: str) -> None:  # type: ignore[no-untyped-def]
    """Texts stand out from their ground (WCAG 1.4.3), which is light or dark as the browser asked."""
    ground = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    small = ("[data-testid=stMetricLabel] p", "[data-testid=stCaptionContainer] p")
    for what in ("h1", "[data-testid=stMetricValue]", *small):
        ink = page.locator(what).first.evaluate("e => getComputedStyle(e).color")
        assert contrast(hexed(ink, ground), hexed(ground, ground)) >= 4.5, what
    lightness = sum(int(x) for x in re.findall(r"\d+", ground)[:3])
    assert (lightness > 600) == (scheme == "light")


def hexed(colour: str, ground: str) -> str:
    """A computed colour on its ground, as #rrggbb."""
    levels, below = ([float(x) for x in re.findall(r"[\d.]+", c)] for c in (colour, ground))
    opacity = levels[3] if len(levels) > 3 else 1.0
    return "#" + "".join(
        f"{round(a * opacity + b * (1 - opacity)):02x}" for a, b in zip(levels[:3], below[:3], strict=True)
    )


def query(page) -> dict[str, list[str]]:  # type: ignore[no-untyped-def]
    return parse_qs(urlsplit(page.url).query)


def choose(page, box: str, option: str) -> None:  # type: ignore[no-untyped-def]
    """As a person does: a list that opened while the page was drawn anew has closed again, and is opened once more."""
    for left in reversed(range(6)):
        page.get_by_role("combobox", name=box).click()
        try:
            page.get_by_role("option", name=option).click(timeout=5000)
        except Late:
            if not left:
                raise
        else:
            return


def test_a_report_as_it_is_and_another_by_its_filters(site: Served, open_page: Open) -> None:
    """One page, since loading it takes longest: what is shown, what is saved, and what filters make of it."""
    page = open_page(f"{site.address}/?{HOUR}&request=r1", WHOLE)
    report = build(None, "2026-11-29T12:00/2026-11-29T13:00")
    page.get_by_text("a note on").wait_for()
    assert urlsplit(page.url).path == "/misses"
    assert tiles(page) == figures(report)
    shown = text_of(page)
    for text in (report.answer, report.warnings[0], report.unknown_needs[0], f"a note on {HOSTILE}"):
        assert text in shown
    page.get_by_text(report.next_steps[1], exact=True).wait_for()
    places = [
        shown.index(text) for text in (report.answer, "Next:", report.next_steps[0], "Prompt tokens by")
    ]
    assert places == sorted(places), "what to do stands before what it is drawn from"
    row = page.get_by_role("row").filter(has_text="You are a helpful assistant.").inner_text()
    told = ["0-320", "320", "served: device", "held since 12:00:01", "You are a helpful assistant."]
    assert [cell.strip() for cell in row.replace("\u2060", "").split("\t")] == told
    assert page.evaluate("window.hit") is None
    assert page.locator("a[href*='example'], a[href^='javascript']").count() == 0
    assert page.locator("script", has_text="window.hit").count() == 0
    assert_legible(page, "light")
    rows = list(csv.DictReader(saved(page, "CSV").splitlines()))
    assert [int(row["changed"]) for row in rows[:2]] == [
        report.total.parts["changed"],
        report.lines[0].parts["changed"],
    ]
    assert json.loads(saved(page, "JSON"))["total"]["parts"] == report.total.parts
    assert "<script>window.hit" not in saved(page, "HTML")

    page.get_by_role("radio", name="tokens").click()
    conditions = page.get_by_role("combobox", name="Labels and conditions")
    conditions.fill("phase=slow")
    conditions.press("Enter")
    page.get_by_text("Many requests take a while").wait_for()
    conditions.press("Tab")  # closes its list
    choose(page, "Server", "vllm-a")  # it is not waited for
    expected = figures(build(None, "2026-11-29T12:00/2026-11-29T13:00,server=vllm-a,phase=slow"))
    page.get_by_text(expected["Computed"], exact=True).wait_for()
    assert tiles(page) == expected
    assert query(page) == {
        "from": ["2026-11-29T12:00"],
        "to": ["2026-11-29T13:00"],
        "server": ["vllm-a"],
        "where": ["phase=slow"],
        "unit": ["tokens"],
        "request": ["r1"],
    }


def test_a_link_shows_somebody_else_the_same(site: Served, open_page: Open) -> None:
    sent = f"{site.address}/misses?{HOUR}&server=vllm-a&where=prompt_tokens%3E1&unit=tokens"
    page = open_page(sent, WHOLE, scheme="dark")
    assert tiles(page) == figures(
        build(None, "2026-11-29T12:00/2026-11-29T13:00,server=vllm-a,prompt_tokens>1")
    )
    assert page.get_by_role("radio", name="tokens").get_attribute("aria-checked") == "true"
    assert page.url == sent
    assert_legible(page, "dark")


def test_another_page_is_about_the_same_time_and_server(site: Served, open_page: Open) -> None:
    page = open_page(f"{site.address}/misses?{HOUR}&server=vllm-a", WHOLE)
    for name in ("Heatmap", "Misses"):
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", name=name, exact=True).wait_for()
        page.wait_for_url(f"**/{name.lower()}?*server=vllm-a*")
        assert query(page)["from"] == ["2026-11-29T12:00"]
        assert query(page)["to"] == ["2026-11-29T13:00"]


def test_a_broken_address_says_what_is_wrong_with_it(site: Served, open_page: Open) -> None:
    asked = "from=<b>soon</b>&by=junk&server=nope&colour=red&where=foo=bar&where=phase=nothing"
    page = open_page(f"{site.address}/nopage?{asked}", "")
    page.get_by_text("no request matches <b>nothing</b>").wait_for()
    shown = text_of(page)
    for text in (
        "There is no page /nopage: this is Misses.",
        "'<b>soon</b>' is no time; write now, -2h, -3m30s or 2026-11-29T10:00; the last hour is shown",
        "the address has colour=, which means nothing here",
        "server=nope in the address: there is no such server; all are shown",
        "where=foo=bar in the address: requests have no column or label 'foo'",
        "by=junk in the address: requests cannot be grouped by 'junk'",
    ):
        assert text in shown
    assert "Traceback" not in shown
    # Streamlit's own word on /nopage, which is lost where the page is changed before it was sent: it may come or not.
    page.add_locator_handler(page.get_by_role("dialog"), lambda: page.keyboard.press("Escape"))
    page.get_by_role("button", name="Show all there is").click()
    page.get_by_text(WHOLE, exact=True).wait_for()
    assert query(page) == {"from": ["2026-11-29T12:00:00+00:00"], "to": ["2026-11-29T12:00:03+00:00"]}
