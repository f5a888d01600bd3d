"""Where in its log each prompt stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from cachemodel.prompts.kv_recording import Recording
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

    def _read(
        self, data: bytes, place: str, talks: Conversations, recording: Recording
    ) -> list[Prompt] | str:
        told = super()._read(data, place, talks, recording)
        if not isinstance(told, str):
            for prompt in told:
                self._stands(prompt, place)
        return told

    def _of_events(self, recording: Recording) -> list[Prompt]:
        told = super()._of_events(recording)
        for prompt in told:  # they go by the place of the message that they began in
            self._stands(prompt, prompt.request_id.rpartition("#")[0] or prompt.request_id)
        return told

    def _stands(self, prompt: Prompt, place: str) -> None:
        if match := _LINE.fullmatch(place):
            file = self._files.setdefault(match["file"], Path(match["file"]))
            line = int(match["line"]) if match["line"] else None
            self.places.setdefault(prompt.request_id, Place(file, line))
