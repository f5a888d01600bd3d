"""Follows a request log for its prompts, apart from the tail that reads its usage: tokenising may take its time."""

from __future__ import annotations

import time
from typing import NamedTuple

from collector.chains.capture import Texts
from collector.chains.prompt import Prompt
from collector.chains.prompt_log import PromptLog
from collector.chains.row import ChainMaker
from collector.chains.server import Adapters, ServerTokenizer
from collector.chains.settings import Capture
from collector.chains.tokens import Tokenized, Tokenizer, Unanswered, Untokenizable
from collector.chains.waiting import Waiting
from collector.log_tail import POLL_S, RETRY_S
from collector.sink import Entry, Sink
from collector.source import FAILING, RUNNING, WAITING, ThreadSource

MISMATCH = "more or fewer tokens than the response's usage says"
UNANSWERED, NOT_TOKENISED = "no answer from the server", "no tokenizer"
NO_TOKENIZER = "no tokenizer: set --tokenizer to the model's folder, or to approximate for rough ones"
TRIES = 3  # for a prompt that a server answers to with trouble of its own
LONGEST_RETRY_S = 30.0
FLUSH_S = 3.0  # at the end, for what waits
SURE = 8  # counts that were wrong, and none right, before none is believed that nothing confirms
BATCH = 64  # entries that go to the sink together
_MUCH_BEHIND = 1 << 18  # bytes of the log


class Tokens(NamedTuple):
    """Who tells a server's tokens. tokenizer: None where nobody does. adapters: None where it tells of none."""

    tokenizer: Tokenizer | None
    adapters: Adapters | None = None


class ChainTail(ThreadSource):
    """One server's chains, and the texts of its prompts where these are kept. remark: what else its status is to say.

    A chain whose count of tokens is not the response's is not stored: it would be the chain of another prompt.
    """

    def __init__(
        self,
        prompts: PromptLog,
        server: str,
        sink: Sink,
        maker: ChainMaker,
        texts: Texts,
        tokens: Tokens,
        *,
        remark: str = "",
        poll_s: float = POLL_S,
    ) -> None:
        super().__init__(f"chains {server}", sink)
        self._prompts, self._maker, self._texts = prompts, maker, texts
        self._tokenizer, self._adapters = tokens
        self._unasked: ServerTokenizer | None = None  # a server of which it is not known whether it answers
        if isinstance(tokens.tokenizer, ServerTokenizer):
            self._unasked = tokens.tokenizer
            self._unasked.pause = self._stopping.wait  # no pause is worth waiting for at the end
        self._remark, self._poll_s = remark, poll_s
        self._waiting = Waiting()
        self._reasons = prompts.reasons
        self._wrong = ""  # an example

    def work(self) -> None:
        if self._unasked and not self._has_answer(self._unasked):
            return
        try:
            lines = self._read()
        except OSError as error:
            self.tell(FAILING, f"{self._prompts.path}: {error.strerror}")
            self._stopping.wait(RETRY_S)
            return
        self._release()
        self._report()
        if not lines:
            self._stopping.wait(self._poll_s)

    def stop(self, timeout_s: float = 5.0) -> None:
        super().stop(timeout_s)
        if self._thread.ident and not self._thread.is_alive() and not self._unasked:
            self._flush(time.monotonic() + FLUSH_S)
        self._prompts.close()

    def _flush(self, deadline: float) -> None:
        """Take what is in the log and let go of what waits, as far as there is time."""
        try:
            while self._read() and time.monotonic() < deadline:
                self._release(deadline)
        except OSError as error:
            self.tell(FAILING, f"{self._prompts.path}: {error.strerror}")
        self._release(deadline, at_once=True)
        self._report()

    def _has_answer(self, server: ServerTokenizer) -> bool:
        """Whether it is known by now if the server tokenises for others."""
        try:
            if not server.answers():
                self._tokenizer = None
        except Unanswered as error:
            self.tell(FAILING, f"the server cannot be asked for tokens: {error}")
            self._stopping.wait(RETRY_S)
            return False
        self._unasked = None
        return True

    def _read(self) -> int:
        lines, prompts = self._prompts.read()
        for prompt in prompts:
            self._waiting.put(prompt, time.monotonic())
        return lines

    # -- chains

    def _release(self, deadline: float | None = None, *, at_once: bool = False) -> None:
        """Make the rows of those that need wait no longer. deadline: of the end; until then stopping stops it."""
        batch: list[Entry] = []
        segments: list[int] = []
        while prompt := self._waiting.first(time.monotonic(), at_once=at_once):
            over = self._stopping.is_set() if deadline is None else time.monotonic() > deadline
            if over or not self._settle(prompt, batch, segments):
                break
            self._waiting.drop()
            if len(batch) >= BATCH:
                self._put(batch, segments)
        self._put(batch, segments)

    def _put(self, batch: list[Entry], segments: list[int]) -> None:
        if batch and self.deliver(batch):
            self._texts.stored(segments)
            self.counts["chains"] += sum(entry.kind == "chains" for entry in batch)
        batch.clear()
        segments.clear()

    def _settle(self, prompt: Prompt, batch: list[Entry], segments: list[int]) -> bool:
        """Add a prompt's rows to the batch. False where the server must be asked again, and there is no time for it."""
        try:
            tokenized = self._asked(prompt)
        except Unanswered:
            return False
        if prompt.request_id in self._prompts.stored:
            self._prompts.stored.discard(prompt.request_id)
            if tokenized:
                self._maker.seen(tokenized.ids)
            return True
        entries, new = self._texts.entries(prompt, tokenized)
        if tokenized:
            adapter = self._adapters.adapter(prompt.model) if self._adapters else ""
            entries.append(self._maker.entry(prompt, tokenized.ids, self._told_by(prompt), adapter))
        batch += entries
        segments += new
        return True

    def _asked(self, prompt: Prompt) -> Tokenized | None:
        """The tokens, asked for until there is an answer. Raises Unanswered where the end comes first."""
        tries = 0
        while True:
            try:
                return self._tokenized(prompt)
            except Unanswered as error:
                tries += 1
                self.tell(FAILING, f"no tokens from the server: {error}")
                if error.refused and tries == TRIES:
                    self._reasons[UNANSWERED] += 1
                    return None
                if self._stopping.wait(min(RETRY_S * 2 ** min(tries, 9), LONGEST_RETRY_S)):
                    raise

    def _told_by(self, prompt: Prompt) -> str:
        """Token ids in the log are the server's own, whoever else could tell some."""
        return "server" if prompt.tokens is not None or not self._tokenizer else self._tokenizer.told_by

    def _tokenized(self, prompt: Prompt) -> Tokenized | None:
        """The tokens of a prompt, where they can be relied on. Raises Unanswered."""
        if prompt.tokens is not None:
            told = Tokenized(prompt.tokens[-prompt.truncated_to :])
        elif self._tokenizer is None:
            self._reasons[NOT_TOKENISED] += 1
            return None
        elif prompt.request_id in self._prompts.stored and isinstance(self._tokenizer, ServerTokenizer):
            return None  # not worth a question
        else:
            try:
                told = self._tokenizer.tokens(prompt, with_text=self._texts.capture is not Capture.HASHES)
            except Untokenizable as error:
                self._reasons[str(error)] += 1
                return None
            if not self._tokenizer.exact:
                return told
        if self._is_right(prompt, len(told.ids)):
            return told
        self._reasons[MISMATCH] += 1
        return None

    def _is_right(self, prompt: Prompt, tokens: int) -> bool:
        """Whether the count is the response's own; where it has none, whether it can be believed."""
        if prompt.counted is None:
            self.counts["unconfirmed"] += 1
            return tokens > 0 and (self.counts["right"] > 0 or self._reasons[MISMATCH] < SURE)
        right = prompt.counted == tokens
        self.counts["right"] += right
        self._wrong = self._wrong if right else f"{tokens:,} instead of {prompt.counted:,}"
        return right

    # -- status

    def _report(self) -> None:
        path, wrong, right = self._prompts.path, self._reasons[MISMATCH], self.counts["right"]
        if not self.counts["chains"] and not self._reasons.total():
            held = f"{len(self._waiting):,} prompts wait for those that were sent before and still run"
            yet = held if self._waiting else f"no prompt in {path} yet"
            self.tell(WAITING, NO_TOKENIZER if self._tokenizer is None else yet)
        elif wrong >= SURE and wrong > right:
            told = (
                f"{wrong:,} of {wrong + right:,} prompts have other counts than the server's ({self._wrong})"
            )
            self.tell(FAILING, f"{told}: give --tokenizer the files that the server has")
        elif self._tokenizer is None and not self.counts["chains"]:
            self.tell(WAITING, f"{NO_TOKENIZER}{self._left_out()}")
        else:
            self.tell(RUNNING, f"{self.counts['chains']:,} chains from {path}{self._how()}{self._left_out()}")

    def _how(self) -> str:
        if self._tokenizer is None:
            how = NO_TOKENIZER
        elif not self._tokenizer.exact:
            how = "an approximation, their counts are rough: --tokenizer PATH makes them exact"
        else:
            how = f"tokens by {self._tokenizer.name}"
        unsure = self.counts["unconfirmed"]
        parts = [how, self._remark, f"{unsure:,} without a count to compare" if unsure else ""]
        return "".join(f"; {part}" for part in parts if part)

    def _left_out(self) -> str:
        reasons = [f"{count:,} x {reason}" for reason, count in self._reasons.items() if count]
        parts = [f"left out {', '.join(reasons)}" if reasons else ""]
        if late := self._waiting.late:
            parts.append(f"{late:,} logged long after others that were sent later")
        if (behind := self._prompts.behind_bytes()) > _MUCH_BEHIND:
            parts.append(f"{behind / 1e6:,.1f} MB of the log to go")
        return "".join(f"; {part}" for part in parts if part)
