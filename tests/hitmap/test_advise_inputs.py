"""Reading the logs of `hitmap advise`: Python looks for circles afterwards as it did before, whatever happened."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from hitmap.advise.inputs import read_logs
from tests.hitmap.test_advise import CLOCK, log_of


@pytest.fixture(autouse=True)
def thawed() -> object:
    yield
    gc.unfreeze()
    gc.enable()


def test_what_was_read_is_not_looked_through_again(tmp_path: Path) -> None:
    file = log_of(tmp_path, [CLOCK])
    gc.unfreeze()
    read = read_logs([file])
    assert len(read.prompts) == 60
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    followed = {id(one) for one in gc.get_objects()}
    assert not any(id(prompt.parts) in followed or id(prompt.body) in followed for prompt in read.prompts)


def test_who_switched_it_off_finds_it_off(tmp_path: Path) -> None:
    gc.disable()
    read_logs([log_of(tmp_path, [CLOCK])])
    assert not gc.isenabled()


def test_a_log_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.jsonl"
    file.write_text("")
    with pytest.raises(UserError, match="empty"):
        read_logs([file])
    assert gc.isenabled()
