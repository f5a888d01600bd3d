"""Choices that follow one another faster than a page is drawn: none is lost, and none ends in a traceback."""

from __future__ import annotations

from tests.dashboard.conftest import Served, settle
from tests.dashboard.test_browser import HOUR, WHOLE, Open, query

TO_AND_FRO = """async delays => {
    for (const delay of delays)
        for (const name of ["share", "tokens"]) {
            [...document.querySelectorAll("[role=radio]")].find(one => one.innerText.includes(name))?.click()
            await new Promise(done => setTimeout(done, delay))
        }
}"""
# What the server says comes so much later, as over a slow line.
LAG = """
window.lag = 0;
const late = hear => event => setTimeout(() => hear(event), window.lag);
const on = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
Object.defineProperty(WebSocket.prototype, "onmessage", {...on, set(hear) { on.set.call(this, late(hear)); }});
const listen = WebSocket.prototype.addEventListener;
WebSocket.prototype.addEventListener = function (what, hear, ...more) {
    listen.call(this, what, what === "message" ? late(hear) : hear, ...more);
};
"""
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


def test_a_choice_comes_with_the_address_from_before_the_last_one(
    site: Served,
    usual,  # type: ignore[no-untyped-def]
    open_page: Open,
) -> None:
    """It asks for nothing then; one that somebody goes back to does."""
    usual.add_init_script(LAG)
    page = misses(site, open_page)
    page.evaluate("window.lag = 2000")
    page.get_by_role("radio", name="tokens").click()
    box = page.get_by_role("textbox", name="Request id")
    box.fill("r1")
    box.press("Enter")
    page.wait_for_timeout(5000)  # all of it has come by then, also what would undo it
    page.evaluate("window.lag = 0")
    page.wait_for_url(lambda url: "request=r1" in url and "unit=tokens" in url)
    settle(page)
    assert (box.input_value(), checked(page)) == ("r1", "tokens")
    while {"request", "unit"} & query(page).keys():  # one step or two: both may have come in one run
        page.go_back()
    page.get_by_text("Tick a row or type an id").wait_for()
    settle(page)
    assert (box.input_value(), checked(page)) == ("", "share")
    assert not {"request", "unit"} & query(page).keys()
    page.go_forward()
    page.get_by_role("radio", name="tokens", checked=True).wait_for()


def test_a_set_too(
    site: Served,
    usual,  # type: ignore[no-untyped-def]
    open_page: Open,
) -> None:
    usual.add_init_script(LAG)
    page = open_page(f"{site.address}/attribution?a=phase%3Dwarm&b=phase%3Dcold", "Choose by")
    settle(page)
    page.evaluate("window.lag = 2000")
    for name, text in (("A: before", "server=vllm-a"), ("B: after", "phase=warm")):
        box = page.get_by_role("textbox", name=name)
        box.fill(text)
        box.press("Enter")
    page.wait_for_timeout(5000)
    page.evaluate("window.lag = 0")
    page.wait_for_url(lambda url: "a=server%3Dvllm-a" in url and "b=phase%3Dwarm" in url)
    settle(page)
    assert page.get_by_role("textbox", name="A: before").input_value() == "server=vllm-a"


def checked(page) -> str:  # type: ignore[no-untyped-def]
    return str(page.get_by_role("radiogroup").get_by_role("radio", checked=True).inner_text())


def misses(site: Served, open_page: Open):  # type: ignore[no-untyped-def]
    """The page, whole."""
    page = open_page(f"{site.address}/misses?{HOUR}", WHOLE)
    page.get_by_role("radio", name="tokens").wait_for()
    settle(page)
    return page
