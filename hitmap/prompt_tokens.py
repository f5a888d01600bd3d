"""The tokens of a request's body, for those who replay prompts: by a local tokenizer, or approximately."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collector.chains.approximate import Approximation
from collector.chains.prompt import read_body
from collector.chains.settings import APPROXIMATE
from collector.chains.tokens import Tokenizer, Untokenizable


class BodyTokens:
    """name: of who tells the tokens, for people. untold: requests that have no tokens, by reason."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.name = tokenizer.name
        self.untold: dict[str, int] = {}
        self._tokenizer = tokenizer

    def __call__(self, body: Mapping[str, Any]) -> NDArray[np.uint32]:
        """The prompt's tokens; none where it has none, which is counted."""
        prompt = read_body(body)
        if isinstance(prompt, str):
            return self._none(prompt)
        if prompt.tokens is not None:
            return np.array(prompt.tokens, dtype=np.uint32)
        try:
            return np.array(self._tokenizer.tokens(prompt).ids, dtype=np.uint32)
        except Untokenizable as error:
            return self._none(str(error))

    def _none(self, why: str) -> NDArray[np.uint32]:
        self.untold[why] = self.untold.get(why, 0) + 1
        return np.zeros(0, np.uint32)


def body_tokens(wanted: str) -> BodyTokens:
    """wanted: `approximate`, or a model's folder or tokenizer.json. Raises UserError for one that cannot be read."""
    if wanted == APPROXIMATE:
        return BodyTokens(Approximation())
    from collector.chains.local import read_tokenizer  # the library takes its time to load

    return BodyTokens(read_tokenizer(Path(wanted).expanduser()))
