"""Choices that follow one another faster than a page is drawn: none is lost, and none ends in a traceback."""

from __future__ import annotations

from tests.dashboard.conftest import Served, settle
from tests.dashboard.test_browser import HOUR, WHOLE, Open

TO_AND_FRO = """async delays => {
    for (const delay of delays)
        for (const name of ["share", "tokens"]) {
            [...document.querySelectorAll("[role=radio]")].find(one => one.innerText.includes(name))?.click()
            await new Promise(done => setTimeout(done, delay))
        }
}"""
DELAYS_MS = list(range(0, 160, 8))


def test_a_choice_that_is_changed_at_once(site: Served, open_page: Open) -> None:
    page = misses(site, open_page)
    page.evaluate(TO_AND_FRO, DELAYS_MS)
    page.get_by_role("radio", name="tokens").click()
    page.wait_for_url("**unit=tokens**")
    settle(page)
    assert page.get_by_test_id("stException").count() == 0


def test_another_filter_while_the_page_is_drawn(site: Served, open_page: Open) -> None:
    page = misses(site, open_page)
    box = page.get_by_role("textbox", name="Request id")
    for i, delay in enumerate((0, 10, 20, 40, 80, 160)):
        unit = ("tokens", "share")[i % 2]
        box.fill(f"r{i}")
        page.get_by_role("radio", name=unit).click()
        page.wait_for_timeout(delay)
        box.press("Enter")
        page.wait_for_url(
            lambda url, i=i, unit=unit: (
                f"request=r{i}" in url and ("unit=tokens" in url) == (unit == "tokens")
            )
        )
        settle(page)
    assert page.get_by_test_id("stException").count() == 0


def misses(site: Served, open_page: Open):  # type: ignore[no-untyped-def]
    """The page, whole."""
    page = open_page(f"{site.address}/misses?{HOUR}", WHOLE)
    page.get_by_role("radio", name="tokens").wait_for()
    settle(page)
    return page
