"""The sentences of an explanation: what is known of each run of tokens, with times and who."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.misses.assemble import TIERS
from analysis.misses.bins import iso
from analysis.misses.evidence import Seen, held_at
from analysis.misses.model import NOT_TOLD, Chains, Hashes, Ladder, Sent
from analysis.misses.needs import incomplete
from analysis.misses.parts import CACHED
from analysis.misses.prompt_text import PromptText
from analysis.misses.reader import Reading
from cachemodel.alignment import Alignment
from cachemodel.causes import Eviction, MissCause

if TYPE_CHECKING:
    from analysis.misses.explain import Case

_TIERS = {"device": "the device", "host": "host memory", "remote": "disk or another node", CACHED: "a cache"}
_PLACES = ("on the device", "in host memory", "on disk or another node")
_ENDS = {
    Eviction.CAPACITY.value: "evicted to make room {when}",
    Eviction.EXPIRY.value: "expired {when}: nothing needed its room",
    Eviction.CLEAR.value: "gone when the cache was cleared {when}",
    Eviction.RESTART.value: "gone when the server was restarted {when}",
}


def evidence(case: Case, part: str, seen: Sequence[Seen], token: int, end: int) -> str:
    """What is known of a run of tokens [token, end). seen: the stays of the block that it begins in."""
    if part in _TIERS:
        return _hit(case, part, seen)
    if part == MissCause.UNALIGNED:
        return "held, but " + _units(case.law)
    if part == MissCause.NOT_LOADED:
        return _not_loaded(case, seen)
    if part == MissCause.ELSEWHERE:
        others = [stay for stay in seen if held_at(stay, case.moment) and stay.holder != case.holder]
        return f"held by {_holders(case, others)} at that moment" if others else "held by another replica"
    if part == MissCause.ISOLATED:
        return _isolated(case, seen, token)
    if part.startswith(f"{MissCause.EVICTED}/"):
        return _evicted(case, part.partition("/")[2], seen, token)
    if part == MissCause.CHANGED:
        return "sent before, behind something else" + _first_sent(
            case.reading.pieces_sent, _pieces(case, token, end), case
        )
    if part == MissCause.UNKNOWN:
        return _unknown(case, token)
    begin = case.reading.history_begin
    return "never sent before" + (
        f", as far as is known (since {_clock(begin)})" if begin != NOT_TOLD else ""
    )


def alignment(law: Alignment, told: str) -> str:
    """The law of a cache in words, and how it is known."""
    return _units(law) + (f" ({told})" if told else "")


def notes(reading: Reading, chains: Chains, ladder: Ladder, text: PromptText | None) -> list[str]:
    """What to mind when reading an explanation."""
    found = []
    told_by = str(reading.asked.told_by[reading.asked.asked][-1])
    if not chains.known[0]:
        found.append(
            "its prompt is not known, so nothing tells why tokens were computed: attach with --log FILE, a request log"
            " with the bodies, and the server's own --tokenizer; where that is so, its status says whether the"
            " tokenizer counts otherwise than the server"
        )
    elif told_by == "approximation":
        found.append("its prompt was cut into tokens without its tokenizer: positions and causes are rough")
    if ladder.derived[0]:
        estimate = "" if ladder.unknown[0].any() else ": hits are an estimate from prompts and KV events"
        found.append(f"nothing tells what was served{estimate}")
    if chains.known[0] and not len(reading.events.time):
        found.append("its server tells no KV events: what was held when cannot be told")
    if chains.reads_off[0]:
        found.append("an option of the request kept the cache from being read")
    if text:
        kept = "with what looks private replaced" if text.capture == "redacted" else "as it was sent"
        found.append(f"texts are {kept}, cut at about the token")
    elif told_by == "tokenizer":
        found.append(
            "its text is not kept: attach with --capture redacted, and later prompts show theirs run by run"
        )
    return found


def ago(us: int) -> str:
    """A stretch of time for people."""
    seconds = us / 1e6
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if seconds >= 0.9995:
        return f"{seconds:.0f} s" if seconds >= 2 else f"{seconds:.1f} s"
    return f"{max(0.0, seconds) * 1000:.0f} ms"


def _hit(case: Case, part: str, seen: Sequence[Seen]) -> str:
    text = f"served from {_TIERS[part]}"
    tier = TIERS.index(part) if part in TIERS else None
    mine = int(case.chains.isolation[0])
    of_tier = [stay for stay in seen if tier in (None, stay.tier) and stay.isolation == mine]
    held = [stay for stay in of_tier if held_at(stay, case.moment) and stay.holder == case.holder]
    # a clear is told with the step that followed: what it ended may have been gone when the prompt was looked up
    held = [stay for stay in held if held_at(stay, case.looked_up) or stay.lost != Eviction.CLEAR]
    if held:
        text += f", held since {_when(case, min(stay.since for stay in held))}"
    return text


def _not_loaded(case: Case, seen: Sequence[Seen]) -> str:
    held = [stay for stay in seen if held_at(stay, case.moment) and stay.holder == case.holder]
    if case.chains.reads_off[0]:
        return "an option of the request kept the cache from being read"
    if held:
        where = _PLACES[held[-1].tier]
        return (
            f"held {where} since {_when(case, held[-1].since)}, and not served: a load failed or was declined"
        )
    return "being computed for a request ahead of it, or never stored by its server"


def _isolated(case: Case, seen: Sequence[Seen], token: int) -> str:
    mine = int(case.chains.isolation[0])
    others = [stay for stay in seen if stay.isolation != mine and held_at(stay, case.moment)]
    who = f" by {_holders(case, others)}" if others else ""
    return f"held{who} under another salt, adapter or image key" + _sent(case, token)


def _evicted(case: Case, sub: str, seen: Sequence[Seen], token: int) -> str:
    gone = [stay for stay in seen if stay.lost == sub and not held_at(stay, case.looked_up)]
    own = [stay for stay in gone if stay.holder == case.holder]
    if not gone:
        return _ENDS[sub].format(when="before it came") + _sent(case, token)
    last = max(own or gone, key=lambda stay: stay.until)
    where = "" if own else f" (on {_holders(case, [last])})"
    return _ENDS[sub].format(when=_when(case, last.until)) + where


def _unknown(case: Case, token: int) -> str:
    if not case.chains.known[0]:
        return "its prompt is not known"
    if token in case.shared:
        return "less than a block, which only prompts of another server, salt or adapter share: no KV event names it"
    if case.holder == NOT_TOLD:
        return "sent before; nothing tells which of its server's caches it went to, or what that held"
    if case.reading.events.joined[case.holder] == NOT_TOLD:
        return "sent before; its server tells no KV events, so what it held is not known"
    if incomplete(case.reading)[case.one].any():
        return "sent before; the KV events of that time have gaps"
    return "sent before; the KV events do not tell whether it was held"


def _sent(case: Case, token: int) -> str:
    """When the block of a token was sent first, to follow something."""
    depth = min(token // int(case.chains.block_size[0]), len(case.chains.blocks) - 1)
    return (
        _first_sent(case.reading.blocks_sent, case.chains.blocks[depth : depth + 1], case)
        if depth >= 0
        else ""
    )


def _first_sent(sent: Sent, contents: Hashes, case: Case) -> str:
    """When some blocks or pieces were sent first: all of them at one time, or from the longest ago to the latest."""
    arrived = int(case.chains.arrived[0])
    those = np.isin(sent.hash, contents) & (sent.first < arrived)
    if not those.any():
        return ""
    _, which = np.unique(sent.hash[those], return_inverse=True)
    first = np.full(int(which.max()) + 1, arrived)
    np.minimum.at(first, which, sent.first[those])
    longest, latest = ago(arrived - int(first.min())), ago(arrived - int(first.max()))
    return f", first {longest} before" if longest == latest else f", first {longest} to {latest} before"


def _pieces(case: Case, token: int, end: int) -> Hashes:
    """The pieces that some tokens are in."""
    ends = int(case.chains.pieces_from[0]) + np.cumsum(case.chains.piece_tokens)
    inside: Hashes = case.chains.pieces[(ends > token) & (ends - case.chains.piece_tokens < end)]
    return inside


def _units(law: Alignment) -> str:
    text = (
        f"tokens are reused in whole units of {law.unit:,}"
        if law.unit > 1
        else "tokens are reused one by one"
    )
    if law.dropped_units:
        last = "one is" if law.dropped_units == 1 else f"{law.dropped_units} are"
        text += f", of which the last {last} computed all the same"
    return text + (", never the last token" if law.computed_tokens else "")


def _holders(case: Case, stays: Sequence[Seen]) -> str:
    holders = case.reading.events.holders
    several = {server for server, rank in holders if rank}
    names = [
        f"{server} rank {rank}" if server in several else server
        for server, rank in (holders[number] for number in sorted({stay.holder for stay in stays}))
    ]
    return ", ".join(names)


def _when(case: Case, us: int) -> str:
    earlier = f", {ago(case.moment - us)} before" if us < case.moment else ""
    return _clock(us, case.moment) + earlier


def _clock(us: int, beside: int | None = None) -> str:
    """A time of day, with its date unless another moment is of the same day."""
    text = iso(us // 1_000_000 * 1_000_000)
    same_day = beside is not None and iso(beside)[:10] == text[:10]
    return text[11:-1] if same_day else text.replace("T", " ").removesuffix("Z")
