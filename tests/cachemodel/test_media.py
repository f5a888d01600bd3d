from __future__ import annotations

import pytest

from cachemodel.kv_events.media import tier_of


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        ("GPU", "device"),
        ("CPU", "host"),
        ("cpu", "host"),
        ("CPU_PINNED", "host"),
        ("STORAGE", "remote"),
        ("DISK", "remote"),
        ("EXTERNAL", "remote"),
        ("host_pinned", "host"),
        ("cache_level=0", "device"),
        ("cache_level=1", "host"),
        ("cache_level=2", None),
        ("TAPE", None),
        ("", None),
        (None, None),
    ],
)
def test_tiers(medium: str | None, tier: str | None) -> None:
    assert tier_of(medium) == tier
