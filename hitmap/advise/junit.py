"""Advice as JUnit's XML: a test case for each suggestion, which fails past the budget."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from analysis.advisor.report import Told, told_apart
from analysis.advisor.text import LINE
from cachemodel.printable import printable

CLASS = "hitmap.advise"


def junit(suggestions: Sequence[Told], budget: float) -> str:
    """budget: the share of the computed tokens that a suggestion may save. Names end with the key of the suggestion,
    which is the same in every log: by them CI servers know a case again. Without suggestions one test case says that
    there are none: a file without any is an error to some CI servers."""
    failures = sum(one.share > budget for one in suggestions)
    counts = {"tests": str(max(1, len(suggestions))), "failures": str(failures), "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "hitmap advise", "skipped": "0", **counts})
    if not suggestions:
        _case(suite, "nothing in the prompts breaks the cache")
    for one, key in zip(suggestions, told_apart(one.key for one in suggestions), strict=True):
        case = _case(suite, f"{one.cause} at {one.path} [{key}]")
        if one.share > budget:
            said = f"{one.share:.1%} of the computed tokens, of which {budget:.1%} are in the budget"
            failure = ElementTree.SubElement(case, "failure", {"type": _shown(one.cause), "message": said})
            failure.text = _shown(f"{one.evidence}\n{one.safety}: {one.what} ({one.why})\n{one.diff}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    told = {"classname": CLASS, "name": _shown(name).replace("\n", " ")}
    return ElementTree.SubElement(suite, "testcase", told)


def _shown(text: str) -> str:
    """What XML may hold, long lines cut."""
    return "\n".join(
        line if len(line) <= LINE else f"{line[:LINE]} ..." for line in printable(text).split("\n")
    )
