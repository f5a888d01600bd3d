"""The page of an address on a store, drawn without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from clickhouse_connect.driver.client import Client
from streamlit.testing.v1 import AppTest

from dashboard import data, source

Draw = Callable[..., AppTest]


def drawer(page: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Draw]:
    """What draws the page of an address on a store."""

    def drawn(client: Client, **address: str) -> AppTest:
        @contextmanager
        def opener() -> Iterator[Client]:
            yield client

        monkeypatch.setattr(source, "_source", [source.Source(opener)])
        data.forget()
        shown = AppTest.from_function(page, default_timeout=60)
        for name, value in address.items():
            shown.query_params[name] = value
        shown.run()
        assert not shown.exception
        return shown

    yield drawn
    data.forget()


def said(page: AppTest) -> str:
    """All texts of a page, without what keeps them from being Markdown."""
    kinds = (
        page.title, page.subheader, page.markdown, page.caption, page.info, page.warning, page.code, page.error,
    )  # fmt: skip
    return "\n".join(e.value for kind in kinds for e in kind).replace("\\", "").replace("\u2060", "")
