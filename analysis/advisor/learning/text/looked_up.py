"""Where a template has what was looked up: sentences of which each text has some, now here and now there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from analysis.advisor.learning.text.align import Gap
from analysis.advisor.learning.text.pieces import SHORT, phrases, pieces, size
from analysis.advisor.rewriting.words import SENTENCE_END, Words, sentences, squeezed

LASTING = 0.6  # of the texts have a sentence that is of their template
MARK = 24  # characters
FEWEST = 2  # sentences that stand in several places, for them to be drawn from somewhere


def drawn(gaps: Sequence[Gap], reference: Words, texts: Sequence[str]) -> list[Gap]:
    """The gaps of a template, those joined that lie in a stretch of sentences which were looked up."""
    stretches = list(_stretches(reference.text, texts))
    told: list[Gap] = []
    last = None
    for gap in gaps:
        at = reference.starts[gap.first] if gap.first < len(reference) else len(reference.text)
        within = next((stretch for stretch in stretches if stretch[0] <= at < stretch[1]), None)
        if within and within == last:
            told[-1] = Gap(told[-1].first, gap.last)
        else:
            told.append(gap)
        last = within
    return told


def mostly_drawn(texts: Sequence[str], most: float, *, of_head: bool = False) -> bool:
    """Whether more than `most` of what the texts say is in pieces that few others have: of JSON in one line strings, so
    that a value in one of them is not all that follows, and of a head that is one short sentence phrases."""
    short = of_head and all(size(text) < SHORT and len(sentences(text)) < 2 for text in texts)
    told = [phrases(text) if short else pieces(text) for text in texts]
    few = LASTING * len(texts)
    counts = Counter(piece for text in told for piece in set(text))
    varying = sum(len(one) for text in told for one in text if counts[one] < few)
    return varying > most * sum(len(one) for text in told for one in text)


def _stretches(reference: str, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Characters of the reference, from its first sentence of a run that does not last to the end of the last one. Of a
    run several stand elsewhere in other texts, counted from the sentence of the template before them: a value stays."""
    told = [list(_sentences(text)) for text in dict.fromkeys((reference, *texts))]
    counts = Counter(said for text in told for said in {said for said, _, _ in text})
    lasting = {said for said, count in counts.items() if count >= LASTING * len(told)} - _marks(told)
    places: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for text in told:
        anchor, since = "", 0
        for said, _, _ in text:
            anchor, since = (said, 0) if said in lasting else (anchor, since + 1)
            places[said].add((anchor, since))
    run: list[tuple[str, int, int]] = []
    for one in (*_sentences(reference), ("", 0, 0)):
        if one[0] and one[0] not in lasting:
            run.append(one)
            continue
        if sum(len(places[said]) > 1 for said, _, _ in run) >= FEWEST:
            yield run[0][1], run[-1][2]
        run = []


def _marks(told: Sequence[Sequence[tuple[str, int, int]]]) -> set[str]:
    """What a text has several times and is short, such as what ends each document: no sentence of a template."""
    return {
        said
        for text in told
        for said, count in Counter(said for said, _, _ in text).items()
        if count > 1 and len(said) < MARK
    }


def _sentences(text: str) -> Iterator[tuple[str, int, int]]:
    """Its sentences, squeezed, and where they stand."""
    at = 0
    for match in (*SENTENCE_END.finditer(text), None):
        end = match.start() if match else len(text)
        if said := squeezed(text[at:end]):
            yield said, at, end
        at = match.end() if match else end
