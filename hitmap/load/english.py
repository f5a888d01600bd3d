"""Small tables of plain English from which the mix is written."""

from __future__ import annotations

from random import Random
from typing import Any

_ROLES = (
    "You answer questions for the guests of Lindenhof, a small hotel by a lake. Be brief and friendly.\n"
    "- Breakfast is from seven to ten; on Sundays until eleven.\n"
    "- Rooms are ready at three in the afternoon and are left by eleven.\n"
    "- Dogs are welcome in the garden rooms and nowhere else.\n"
    "- Boats are lent at the pier, an hour at a time, and not in strong wind.\n"
    "- Never promise a room; only the front desk can do that.\n",
    "You help the engineers of a tram company to look after their vehicles. Answer in short sentences.\n"
    "- Name the part before you name the fault.\n"
    "- A vehicle with a brake warning stays in the depot; say so each time.\n"
    "- Distances are in kilometres, pressures in bar, temperatures in degrees Celsius.\n"
    "- Do not guess a part number: ask for the plate on the housing.\n"
    "- Where two causes are possible, begin with the one that is quicker to rule out.\n",
    "You are the study companion of an evening school. Learners are adults who come after work.\n"
    "- Explain one idea at a time and give one example from daily life.\n"
    "- Ask the learner to try the next step before you show it.\n"
    "- Do not solve graded homework; show a similar task and solve that one.\n"
    "- If a learner is stuck twice at one place, go back one step.\n"
    "- Praise what was right, in a few words, before you correct.\n",
)
_HOUSE_RULES = (
    "House rules for every answer:\n"
    "1. Write in the language in which you were asked, and keep to it for the whole conversation.\n"
    "2. Say first what the person can do now; reasons come after that, if they were asked for.\n"
    "3. If a question can be read in two ways, say which one you answer and offer the other.\n"
    "4. Use figures for numbers and the twenty-four-hour clock for times.\n"
    "5. Do not give medical or legal advice; name the office or the person who can.\n"
    "6. Nothing about other people leaves this conversation, whoever asks for it.\n"
    "7. If you do not know, say so in one sentence and say who would know.\n"
    "8. Three paragraphs are the most; a list has no more than five points.\n"
    "9. Do not repeat the question, and do not praise it.\n"
    "10. When somebody is angry, stay calm, be short, and offer a call back.\n"
    "11. A price or a date that you were not given is not yours to invent.\n"
    "12. End without a question unless you need an answer to go on."
)
SYSTEMS = tuple(role + _HOUSE_RULES for role in _ROLES)
OPENINGS = ("Good morning.", "Hello!", "I have a question.", "A short one, please.", "Thanks for your help.")
QUESTIONS = (
    "What should I look at first?",
    "Can you explain that in two sentences?",
    "What happens if I wait until tomorrow?",
    "Is there a simpler way to do it?",
    "Which of the two would you choose, and why?",
    "What do I need to bring?",
    "Who decides that in the end?",
    "How long does it usually take?",
    "What is the most common mistake?",
    "Could you give me an example?",
)
NAMES = ("Ada", "Bruno", "Carla", "Deniz", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Lena")

RAG_SYSTEM = (
    "You answer from the documents of the town archive only. Quote the number of the document that you used, and the "
    "year where it gives one. If two documents disagree, tell both. If the documents do not hold the answer, say that "
    "they do not, and what kind of document would."
)
SUBJECTS = (
    "The old bridge",
    "The market hall",
    "The water tower",
    "The school",
    "The harbour crane",
    "The mill",
)
DEEDS = (
    "was built by the town after the flood",
    "was paid for with a tax on salt",
    "stood empty for eleven years",
    "was moved a few metres to the north",
    "got a new roof of grey slate",
    "was drawn by every pupil of that year",
    "burnt down and was built again in brick",
    "was sold to a family of dyers",
)
RAG_QUESTIONS = (
    "Who paid for {}?",
    "When did {} change hands?",
    "What do the documents say about the roof of {}?",
    "Was {} ever out of use, and for how long?",
)

AGENT_SYSTEM = (
    "You are an agent that keeps the stock of a bicycle workshop in order. Work step by step: look before you order, "
    "order only what is missing, take the supplier with the shorter delivery where the prices are close, and write a "
    "note when you are done. Call one tool at a time, and wait for its result. Never order more than twenty pieces of "
    "anything; if more are wanted, write a note instead."
)
PARTS = ("brake cable", "inner tube", "chain", "saddle post", "spoke", "bottle cage", "front light", "pedal")


def documents(count: int, seed: int) -> list[str]:
    """Short documents that differ from their first line on."""
    random = Random(f"{seed}/documents")  # noqa: S311 - it is to be repeatable
    found = []
    for number in range(count):
        subject = SUBJECTS[number % len(SUBJECTS)]
        deeds = [f"In {random.randrange(1720, 1960)} it {deed}." for deed in random.sample(DEEDS, 5)]
        found.append(f"Document {number + 1}. {subject}. {' '.join(deeds)}")
    return found


def _tool(name: str, does: str, **fields: str) -> dict[str, Any]:
    properties = {field: {"type": kind} for field, kind in fields.items()}
    parameters = {"type": "object", "properties": properties, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": does, "parameters": parameters}}


TOOLS = (
    _tool("count_stock", "How many of a part are on the shelf.", part="string"),
    _tool("list_suppliers", "Suppliers that have a part, with price and days.", part="string"),
    _tool("place_order", "Order a part from a supplier.", part="string", supplier="string", pieces="integer"),
    _tool("write_note", "Leave a note for the workshop.", text="string"),
)
