"""Where in its log each prompt stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cachemodel.prompts.model import Prompt
from cachemodel.prompts.telemetry import Conversations
from hitmap.prompt_files import PromptFiles

_LINE = re.compile(r"(?P<file>.*?)(?::(?P<line>\d+)|\[\d+\])", re.DOTALL)


class Place(NamedTuple):
    """line: None for an item of an array, which has none of its own."""

    file: Path
    line: int | None


class PlacedFiles(PromptFiles):
    """Prompts of files, and `places` of those that were read, by their request ids: of several, the first."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.places: dict[str, Place] = {}
        self._files: dict[str, Path] = {}

    def _read(self, data: bytes, place: str, talks: Conversations) -> list[Prompt] | str:
        told = super()._read(data, place, talks)
        if not isinstance(told, str) and (match := _LINE.fullmatch(place)):
            file = self._files.setdefault(match["file"], Path(match["file"]))
            stands = Place(file, int(match["line"]) if match["line"] else None)
            for prompt in told:
                self.places.setdefault(prompt.request_id, stands)
        return told
