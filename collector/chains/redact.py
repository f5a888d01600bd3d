"""Takes out of a text what looks personal or secret, a typed placeholder in its place. Pure.

Found by form alone: addresses of mail, numbers of phones, cards, accounts and such (six digits or more), secrets of
known forms and whatever a name such as `password` introduces, logins in URLs, IP addresses, and names behind words that
introduce one. Points in time stay: they are what breaks caches. Not found: names that nothing introduces, street
addresses, dates of birth, what is spelled out in words or split over lines, secrets that look like words, and what is
personal by its meaning.
"""

from __future__ import annotations

import re

_RULES = tuple(
    (placeholder, re.compile(pattern, re.DOTALL))
    for placeholder, pattern in (
        ("<private key>", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
        ("<login>", r"(?<=://)[^\s/@:]{1,200}(?::[^\s/@]{0,200})?(?=@)"),
        ("<uuid>", r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
        ("<email>", r"(?<![\w.+%-])[\w.+%-]{1,64}(?:@|%40)[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"),
        ("<token>", r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"),
        (
            "<token>",
            r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|github_pat|glpat|hf|xox[abps]|AKIA|ASIA|AIza|ya29)[-_.]?[\w-]{12,}",
        ),
        ("<token>", r"(?i:\bbearer\s+)[\w.~+/=-]{8,}"),
        ("<token>", r"(?i:\bbasic\s+)(?=[\w+/-]{0,200}(?:\d|[a-z][A-Z]|=))[\w+/-]{6,}={0,2}"),
        ("<ip>", r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d)"),
        ("<ip>", r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?![\w:])"),
        (
            "<ip>",
            r"(?<![\w:])(?=[0-9a-fA-F:]{0,39}::)(?=:*[0-9a-fA-F])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])",
        ),
        ("<mac>", r"(?<![\w:-])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![\w:-])"),
        ("<iban>", r"\b[A-Z]{2}\d{2}(?: ?[0-9A-Z]{4}){3,7}(?: ?[0-9A-Z]{1,3})?\b"),
        ("<token>", r"(?<![\w/+=-])(?=[\w/+=-]*\d)(?=[\w/+=-]*[A-Za-z])[\w/+=]{24,}"),
    )
)
_TIME = r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)"
_NUMBER = re.compile(rf"({_TIME})|\+?\(?\d(?:[ ./()-]{{0,2}}\d){{5,}}")
_SECRET = re.compile(
    r"(?i)((?:\b|(?<=\\[nrt]))(?:\w{0,30}[_-])?(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|token"
    r"|credentials?|pin)\b(?:\\{0,8}[\"'])?(?:\s*[:=]\s*|\s+is\s+))"
    # in quotes to their end, which can be escaped as often as their beginning and may stand in the secret more often
    r"(?:(\\{0,8}[\"'])(?:(?!(?<!\\)\2)(?:\\.|[^\n])){1,200}(?=\2)|(\\{0,8}[\"']?)[^\s\"',;<>]{3,})"
)
_TITLE = r"(?:(?:[Mm]rs?|[Mm]s|[Dd]r|[Pp]rof)\.?\s+)"
_CAPITALISED = r"[^\W\d_a-z][\w'’-]+"
_SAID = re.compile(
    r"(?i:\b(my name is|my name's|\bname:|i am called|call me|mein name ist|ich heiße|je m'appelle|me llamo|mi chiamo))"
    rf"(\s+)[^\W\d_][\w'’-]*((?: {_CAPITALISED}){{0,2}})"
)
_ADDRESSED = re.compile(
    rf"\b((?i:this is|i'm|i am|signed,?|regards,?|dear|hello|hi|hey)\s+{_TITLE}?|{_TITLE})"
    rf"({_CAPITALISED}(?: {_CAPITALISED}){{0,2}})"
)
_SENTENCES = (
    "The An It We You He She They This That There What How Why When Where Who Yes No Not And But Or So If Please Thanks"
    " Thank Sorry Sure Hello Hi Hey Sir Madam All Team Everyone Customer User Assistant World"
)
_NO_NAMES = frozenset(_SENTENCES.split())


def redacted(text: str) -> str:
    """The text with placeholders. The same text always gives the same."""
    text = _SECRET.sub(lambda found: f"{found[1]}{found[2] or found[3] or ''}<secret>", text)
    for placeholder, pattern in _RULES:
        text = pattern.sub(placeholder, text)
    text = _NUMBER.sub(lambda found: found[1] or "<number>", text)
    text = _SAID.sub(r"\1\2<name>", text)
    return _ADDRESSED.sub(_without_name, text)


def _without_name(found: re.Match[str]) -> str:
    return found[0] if found[2].split(" ")[0] in _NO_NAMES else f"{found[1]}<name>"
