"""One table of names: columns exist, colours differ, the ladder is complete."""

from __future__ import annotations

from importlib import resources

from cachemodel.causes import LADDER, MissCause
from cachemodel.layers import SERVING_LAYERS


def test_every_layer_has_its_column() -> None:
    schema = resources.files("store").joinpath("schema/0004_requests.sql").read_text()
    assert all(f" {layer.column} " in schema for layer in SERVING_LAYERS)


def test_names_and_colours_are_distinct() -> None:
    for values in ([s.name for s in SERVING_LAYERS], [s.colour for s in SERVING_LAYERS]):
        assert len(set(values)) == len(values)


def test_the_ladder_ends_with_everything_and_leaves_only_unknown_out() -> None:
    assert [r.cause for r in LADDER] == [c for c in MissCause if c is not MissCause.UNKNOWN]
    assert LADDER[-1].cause is MissCause.COLD
