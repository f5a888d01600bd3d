"""deploy/ names only what exists: options of the command line, files, environment variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from hitmap.cli import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"])


def test_the_collectors_command_line_is_one(services: dict[str, Any]) -> None:
    name, *words = services["collector"]["command"]
    command = cli.get_command(cli.make_context("hitmap", [name]), name)
    assert command is not None
    options = {option: parameter for parameter in command.params for option in parameter.opts}
    assert set(words[::2]) <= set(options)
    known = {parameter.envvar for parameter in command.params if hasattr(parameter, "envvar")}
    assert set(services["collector"]["environment"]) <= known


def test_the_image_is_built_from_files_that_exist(services: dict[str, Any]) -> None:
    build = services["collector"]["build"]
    context = ROOT / "deploy" / build["context"]
    assert (context / build["dockerfile"]).exists()
    assert "/src[server]" in (context / build["dockerfile"]).read_text()
    assert (context / "constraints.txt").exists()
