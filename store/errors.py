"""What ClickHouse, or what stands for it here, says when it refuses or fails a statement."""

from __future__ import annotations

import re

_CODE = re.compile(r"Code: (\d+)\. DB::Exception: (.*)", re.DOTALL)


class EngineError(Exception):
    """ClickHouse, or what stands for it here, refused or failed a statement; `code` is ClickHouse's error code."""

    def __init__(self, code: int, text: str, name: str = "") -> None:
        super().__init__(f"Code: {code}. DB::Exception: {text}" + (f" ({name})" if name else ""))
        self.code = code

    @classmethod
    def of(cls, error: Exception) -> EngineError:
        """The engine's own code and words out of what the binding raised."""
        text = _words(error)
        found = _CODE.search(text)
        return cls(int(found[1]), found[2].strip()) if found else cls(1002, text, "UNKNOWN_EXCEPTION")


def _words(error: Exception) -> str:
    """The binding fails on words that quote bytes which are no text; they are in what it raises."""
    for cause in (error, error.__cause__):
        if isinstance(cause, UnicodeDecodeError):
            return bytes(cause.object).decode(errors="replace")
    return str(error)
