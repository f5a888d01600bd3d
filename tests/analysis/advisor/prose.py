"""Made-up text that reads like some: sentences in three languages, instructions, documents and code, from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

SUBJECTS = (
    *(
        "the driver",
        "our warehouse",
        "a returning guest",
        "the night shift",
        "the billing team",
        "every branch",
    ),
    *("the insurer", "a certified engineer", "the municipal office", "the supplier", "the second reviewer"),
    *("the mobile app", "the regional lead", "an external auditor", "the booking desk", "the archive"),
)
VERBS = (
    *("confirms", "returns", "replaces", "forwards", "inspects", "cancels", "documents", "escalates"),
    *("postpones", "translates", "measures", "approves", "weighs", "archives", "rejects", "schedules"),
)
OBJECTS = (
    *("the damaged parcel", "an open invoice", "the spare valve", "two sealed samples", "the warranty card"),
    *(
        "a written complaint",
        "the delivery window",
        "the pressure log",
        "the seating plan",
        "last year's budget",
    ),
    *("the customs form", "the rental contract", "a prescription", "the fallback route", "the safety notice"),
)
ENDS = (
    *(
        "before the end of the week",
        "with a photograph",
        "once the deposit has arrived",
        "without asking twice",
    ),
    *(
        "when the gate is closed",
        "in the language of the customer",
        "after a second reading",
        "by registered mail",
    ),
    *("if the weather allows it", "as the handbook demands", "for members only", "through the usual channel"),
)
FI = (
    (
        "Kuljettaja",
        "Varastomme",
        "Palaava vieras",
        "Yövuoro",
        "Laskutus",
        "Vakuutusyhtiö",
        "Toimittaja",
        "Kunta",
    ),
    ("vahvistaa", "palauttaa", "vaihtaa", "välittää", "tarkastaa", "peruuttaa", "kirjaa", "siirtää"),
    (
        "paketin",
        "avoimen laskun",
        "varaosan",
        "takuukortin",
        "valituksen",
        "reitin",
        "sopimuksen",
        "reseptin",
    ),
    (
        "ennen viikonloppua",
        "valokuvan kanssa",
        "kirjallisesti",
        "sään salliessa",
        "ohjeen mukaan",
        "postitse",
    ),
)
JA = (
    ("運転手", "倉庫", "夜勤の担当者", "請求係", "保険会社", "仕入れ先", "市役所", "監査人"),
    ("荷物", "請求書", "予備の部品", "保証書", "苦情", "契約書", "処方箋", "予算案"),
    ("週末までに", "写真を添えて", "書面で", "天候が許せば", "手引きに従って", "郵送で"),
    (
        "確認します",
        "返却します",
        "交換します",
        "転送します",
        "点検します",
        "取り消します",
        "記録します",
        "延期します",
    ),
)
LANGUAGES = ("en", "fi", "ja")


def sentence(chance: random.Random, language: str = "en") -> str:
    """One sentence, and rarely the same one twice."""
    if language == "ja":
        who, what, how, does = map(chance.choice, JA)
        return f"{who}は{what}を{chance.randrange(2, 900)}番として{how}{does}。"
    if language == "fi":
        words = list(map(chance.choice, FI))
        return f"{' '.join(words)} kohteessa {chance.randrange(2, 900)}."
    told = f"{chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(OBJECTS)}"
    if chance.random() < 0.5:
        told += f" of case {chance.randrange(10, 9000)}"
    return f"{told[0].upper()}{told[1:]} {chance.choice(ENDS)}."


def paragraph(chance: random.Random, sentences: int, language: str = "en") -> str:
    """Several sentences."""
    return ("" if language == "ja" else " ").join(sentence(chance, language) for _ in range(sentences))


def instructions(chance: random.Random, lines: int, language: str = "en") -> str:
    """What somebody wrote for a model, a line each."""
    opening = {
        "en": "You are the assistant of {}.",
        "fi": "Olet avustaja, jonka työnantaja on {}.",
        "ja": "あなたは{}の案内係です。",
    }[language]
    name = "".join(
        chance.choice(("ka", "ro", "mi", "tel", "no", "van", "su", "li")) for _ in range(4)
    ).title()
    return "\n".join((opening.format(name), *(f"- {sentence(chance, language)}" for _ in range(lines))))


def question(chance: random.Random, language: str = "en") -> str:
    """What a person asks, long or short."""
    asked = {"en": "Can you tell me what happens now?", "fi": "Mitä nyt tapahtuu?", "ja": "どうなりますか。"}
    return paragraph(chance, chance.randrange(1, 4), language) + " " + asked[language]


def answer(chance: random.Random, language: str = "en") -> str:
    """What a model says to that."""
    return paragraph(chance, chance.randrange(2, 7), language)


def code(chance: random.Random, functions: int) -> str:
    """A file of Python."""
    nouns, verbs = (
        ("route", "ledger", "parcel", "gauge", "ticket", "seat"),
        ("load", "merge", "rank", "trim", "send"),
    )
    told = ["from __future__ import annotations", "", "import json", "import logging", ""]
    for number in range(functions):
        noun, other = chance.choice(nouns), chance.choice(nouns)
        name = f"{chance.choice(verbs)}_{noun}_{chance.randrange(1000)}"
        told += [
            f"def {name}({noun}: dict[str, int], limit: int = {chance.randrange(5, 500)}) -> list[int]:",
            f'    """{sentence(chance)}"""',
            f"    {other}s = [{noun}[key] for key in sorted({noun}) if {noun}[key] < limit]",
            f"    logging.info('%d of {noun}s in {name}', len({other}s))",
            f"    return {other}s[: {chance.randrange(2, 40)}]"
            if number % 3
            else f"    return json.loads(str({other}s))",
            "",
        ]
    return "\n".join(told)


def tool(name: str, seed: int = 0) -> dict[str, object]:
    """A tool's definition, with a few parameters."""
    chance = random.Random(f"{name} {seed}")
    fields: Sequence[str] = ("path", "query", "limit", "case", "reason", "since", "recursive")
    wanted = chance.sample(fields, chance.randrange(2, 5))
    properties = {field: {"type": "string", "description": sentence(chance)} for field in wanted}
    parameters = {"type": "object", "properties": properties, "required": wanted[:1]}
    described = paragraph(chance, 3)
    return {
        "type": "function",
        "function": {"name": name, "description": described, "parameters": parameters},
    }


Say = Callable[[random.Random, str], str]
