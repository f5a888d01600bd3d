from __future__ import annotations

import pytest

from cachemodel.kv_events.media import pseudonym, tier_of


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


def test_a_pseudonym_hides_a_name_and_keeps_what_is_equal() -> None:
    assert pseudonym("tenant-1") == pseudonym("tenant-1") == pseudonym(b"tenant-1")
    assert pseudonym("tenant-1") != pseudonym("tenant-2")
    assert "tenant" not in pseudonym("tenant-1")
    assert len(pseudonym("x" * 10_000)) == 17


def test_what_is_a_digest_already_stays() -> None:
    digest = "0123456789abcdef" * 4
    assert pseudonym(digest) == digest
    assert pseudonym(digest[:-1]) != digest[:-1]
