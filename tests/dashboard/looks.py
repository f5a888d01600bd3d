"""Whether what stands in the charts of a page lies on something else, or is cut off, in a real browser."""

from __future__ import annotations

from typing import Any

WIDTHS = (1280, 420)

_BOXES = r"""() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => {
    const box = (e) => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
    const all = (kind, what, those = () => true) => [...plot.querySelectorAll(what)]
        .filter(e => e.getBoundingClientRect().width && those(e)).map(e => ({kind, text: e.textContent, box: box(e)}));
    const of = (axis) => (e) => RegExp(`^${axis}\\d*tick$`).test(e.parentNode.getAttribute('class'));
    return {
        frame: box(plot),
        texts: [...all('xtick', 'text', of('x')), ...all('ytick', 'text', of('y')), ...all('title', '[class^=g-] text'),
            ...all('legend', '.legend'), ...all('name', '.annotation-text')],
        area: [...plot.querySelectorAll('.nsewdrag')].map(box),
    };
})"""
_READY = """() => [...document.querySelectorAll('.stPlotlyChart')].every(e => {
    const plot = e.querySelector('.js-plotly-plot');
    return plot && plot._fullLayout && Math.abs(plot._fullLayout.width - plot.getBoundingClientRect().width) < 2;
})"""


def faults(page: Any) -> list[str]:
    """What a person would not be able to read, a line each. Texts of two pixels in common still stand apart."""
    found = []
    for plot in page.evaluate(_BOXES):
        texts = plot["texts"]
        left, top, right, bottom = plot["frame"]
        for at, one in enumerate(texts):
            a, b, c, d = one["box"]
            if a < left - 1 or b < top - 1 or c > right + 1 or d > bottom + 1:
                found.append(f"{one['text']!r} is cut off")
            found += [
                f"{one['text']!r} lies on {other['text']!r}"
                for other in texts[:at]
                if _meet(one["box"], other["box"])
            ]
        for one in texts:
            if one["kind"] in ("xtick", "legend") and any(_meet(one["box"], area) for area in plot["area"]):
                found.append(f"{one['text']!r} lies on the chart")
        if sum(one["kind"] == "xtick" for one in texts) < 2:
            found.append(f"{texts[:1]}: no ticks")
    return found


def _meet(one: list[float], other: list[float]) -> bool:
    return all(min(one[at + 2], other[at + 2]) - max(one[at], other[at]) > 2 for at in (0, 1))


def whole(page: Any) -> None:
    """Wait until every chart stands still at its width."""
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    page.wait_for_function(_READY)
    page.wait_for_timeout(700)
