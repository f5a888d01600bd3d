"""A description of layers: what is read, and what each mistake is told as, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.chain.model import Hit, Spans
from analysis.chain.read import ChainError, read_chain

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "cdn" / "layers.yaml"
GOOD = """\
name: shop
meaning: time to the page
request: {span: "GET *", service: front, where: {http.request.method: GET}}
layers:
  - name: cache
    meaning: looking up
    colour: "#56B4E9"
    spans: {span: cache.get}
    hit: {attribute: hit, is: ["yes"]}
  - name: database
    meaning: asking
    colour: "#D55E00"
    attribute: db.seconds
    unit: s
"""


def mistakes(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "layers.yaml"
    file.write_text(text)
    with pytest.raises(ChainError) as error:
        read_chain(file)
    return [line.removeprefix(f"{file}") for line in str(error.value).splitlines()]


def test_the_example() -> None:
    chain = read_chain(EXAMPLE)
    assert [layer.name for layer in chain.layers] == ["cdn", "edge", "origin"]
    assert [layer.parent for layer in chain.layers] == ["", "cdn", "edge"]
    assert [layer.name for layer in chain.answering] == ["cdn", "edge", "origin"]
    assert chain.workload.template == "http.route"


def test_all_that_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / "layers.yaml"
    file.write_text(GOOD)
    chain = read_chain(file)
    assert chain.request == Spans("GET *", "front", {"http.request.method": "GET"})
    assert chain.layers[0].hit == Hit(**{"attribute": "hit", "is": ("yes",)})
    assert (chain.layers[1].attribute, chain.layers[1].unit) == ("db.seconds", "s")
    drawn = chain.layers[0].drawn()
    assert (drawn.name, drawn.meaning, drawn.colour) == ("cache", "looking up", "#56B4E9")


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("service: front", "servce: front", ":3: request.servce is unknown: did you mean service?"),
        ('colour: "#56B4E9"', "colour: blue", ":7: layers.0.colour: a colour is written #0072B2"),
        ("meaning: time to the page\n", "", ":1: meaning is missing"),
        ("name: database", "name: cache", ":10: there are two layers 'cache': give one another name"),
        ("name: database", "name: workload", ":10: 'workload' is a name of the report's own: take another"),
        ("    unit: s", "    unit: h", ":14: layers.1.unit: input should be 's', 'ms', 'us' or 'ns'"),
        (
            "    unit: s",
            "    unit: s\n    parent: disk",
            ":15: no layer 'disk' stands before 'database'; there: cache",
        ),
        (
            "    attribute: db.seconds\n",
            "",
            ":10: layer 'database': say where its time comes from: either spans: {span: NAME} or attribute: NAME",
        ),
        (
            "    unit: s",
            "    hit: {attribute: hit}",
            ":14: layer 'database': hit is told by a span: give spans: {span: NAME}",
        ),
        ("layers:", "layers: [", ":5: "),
        ("name: shop", "name: shop\nname: shop", ":2: name stands twice"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, good: str, bad: str, told: str) -> None:
    assert GOOD.count(good) >= 1
    found = mistakes(tmp_path, GOOD.replace(good, bad, 1))
    assert any(line.startswith(told) for line in found), found


def test_several_at_once(tmp_path: Path) -> None:
    found = mistakes(tmp_path, GOOD.replace("colour", "color"))
    numbers = [int(line.split(":")[1]) for line in found]
    assert numbers == sorted(numbers)
    assert ":7: layers.0.color is unknown: did you mean colour?" in found
    assert ":5: layers.0.colour is missing" in found


@pytest.mark.parametrize("text", ["", "- 1", "just text", "a: &a [*a]", "name: !!python/object:os.system x"])
def test_what_is_no_description(tmp_path: Path, text: str) -> None:
    assert mistakes(tmp_path, text)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match=r"No such file or directory; docs/layers\.md has one to start from"):
        read_chain(tmp_path / "absent.yaml")
    (tmp_path / "image").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(ChainError, match="is no text in UTF-8"):
        read_chain(tmp_path / "image")
