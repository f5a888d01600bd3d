"""What values are is told by how they behave; nothing is left out of a prompt that a model could read."""

from __future__ import annotations

import base64
import random
import string
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.advisor.learning.behaviour import Seen, behaviour, cause
from analysis.advisor.learning.cause import REMEDIES, Cause, Safety

Make = Callable[[random.Random], str]
NAMES = (
    "Ada",
    "Bela",
    "Krzysztof",
    "Dora",
    "Emil",
    "Schmidt",
    "Gus",
    "Hana",
    "Oluwaseun",
    "Szczepan",
    "Lena",
)
SURNAMES = ("Abbott", "Bauer", "Cohen", "Schwartz", "Evans", "Fischer", "Grzyb", "Huber", "Ito", "Nkrumah")
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def drawn(letters: str, n: int) -> Make:
    return lambda chance: "".join(chance.choice(letters) for _ in range(n))


def one_of(*what: str) -> Make:
    return lambda chance: chance.choice(what)


def told(values: list[str], **more: list[str]) -> Cause:
    """The cause of values that were sent a minute apart, in sessions or by users as told."""
    seen = [
        Seen(at, value, 1.79e9 + 60 * at, **{name: column[at] for name, column in more.items()})
        for at, value in enumerate(values)
    ]
    return cause(seen, behaviour(seen))


IDS: dict[str, Make] = {
    "hexadecimal": drawn("0123456789abcdef", 16),
    "short hexadecimal with its name": lambda chance: f"span={chance.getrandbits(48):012x}",
    "UUID": lambda chance: str(uuid.UUID(int=chance.getrandbits(128))),
    "UUID in JSON": lambda chance: f'{{"trace": "{uuid.UUID(int=chance.getrandbits(128))}"}}',
    "traceparent": lambda chance: f"00-{chance.getrandbits(128):032x}-{chance.getrandbits(64):016x}-01",
    "Crockford's base 32": drawn(CROCKFORD, 26),
    "base 64": lambda chance: base64.b64encode(chance.randbytes(18)).decode(),
    "letters of one case and digits": drawn(string.ascii_lowercase + string.digits, 12),
    "letters of both cases and digits": drawn(string.ascii_letters + string.digits, 21),
    "consonants": drawn("bcdfghjklmnpqrstvwxz", 12),
    "letters": drawn(string.ascii_lowercase, 40),
    "a number that nobody reads": drawn("123456789", 19),
}
SAYING: dict[str, Make] = {
    "a name": lambda chance: f"{chance.choice(NAMES)} {chance.choice(SURNAMES)}",
    "a name in one word": lambda chance: chance.choice(NAMES).lower() + chance.choice(SURNAMES).lower(),
    "a user's name": lambda chance: (
        f"{chance.choice(NAMES).lower()}{chance.randrange(1950, 2010)}{drawn('abk', 1)(chance)}"
    ),
    "an address in German": lambda chance: (
        f"{chance.choice(SURNAMES)}straße {chance.randrange(1, 140)}, {chance.randrange(10_000, 99_999)} Köln"
    ),
    "mail": lambda chance: f"{chance.choice(NAMES).lower()}{chance.randrange(99)}@example.org",
    "a telephone number": lambda chance: f"+358 {chance.randrange(10**9, 10**10)}",
    "a payment card": lambda chance: " ".join(f"{chance.randrange(10**4):04}" for _ in range(4)),
    "an account": lambda chance: f"DE{chance.randrange(10**19, 10**20)}",
    "a booking": drawn(CROCKFORD, 6),
    "a number plate": lambda chance: f"KA-{drawn('ABCDEFGH', 2)(chance)} {chance.randrange(1, 9999)}",
    "stock as JSON": lambda chance: (
        f'{{"hylly A": {chance.randrange(99)}, "hylly B": {chance.randrange(99)}, "hylly C": {chance.randrange(99)}}}'
    ),
    "weather in Spanish": lambda chance: (
        f"{chance.uniform(-4, 30):.1f} °C, {one_of('nublado', 'soleado', 'lluvia')(chance)}"
    ),
    "a share of the day": lambda chance: f"{chance.uniform(3000, 3200):.1f} ({chance.uniform(-2, 2):+.2f}",
    "how long it took": lambda chance: (
        f"{chance.randrange(1, 24)}h{chance.randrange(60):02}m{chance.randrange(60):02}s"
    ),
    "a size": lambda chance: f"{chance.randrange(400, 4000)}x{chance.randrange(300, 3000)}px",
    "moves": lambda chance: "".join(chance.choice("abcdefgh") + chance.choice("12345678") for _ in range(6)),
    "a branch and its state": lambda chance: (
        f"{one_of('main', 'fix/login-loop')(chance)} @ {chance.getrandbits(28):07x}, {chance.randrange(40)} dirty"
    ),
    "a file": lambda chance: (
        f"src/{one_of('auth', 'cart', 'mail')(chance)}/{chance.choice('abc')}{chance.randrange(99)}.py"
    ),
    "a version": lambda chance: (
        f"v{chance.randrange(9)}.{chance.randrange(30)}.{chance.randrange(99)}rc{chance.randrange(9)}"
    ),
    "the time in Chinese": lambda chance: (
        f"现在是{chance.choice('一二三四五六七八九十')}点{chance.choice('二三四五')}十{chance.choice('一二三四五六七八九')}分"
    ),
    "a name in Arabic": lambda chance: (
        f"{one_of('سامر', 'ليلى', 'نور')(chance)} {one_of('حداد', 'خوري')(chance)}"
    ),
}


@pytest.mark.parametrize("name", IDS)
@given(seed=st.integers(0, 10**6), n=st.integers(30, 80))
def test_what_says_nothing_is_an_id(name: str, seed: int, n: int) -> None:
    chance = random.Random(seed)
    assert told([IDS[name](chance) for _ in range(n)]) is Cause.NONCE


@pytest.mark.parametrize("name", SAYING)
@given(seed=st.integers(0, 10**6), n=st.integers(3, 80))
def test_what_a_model_could_read_is_never_left_out(name: str, seed: int, n: int) -> None:
    """Whatever it is called, and however few there are."""
    chance = random.Random(seed)
    why = told([SAYING[name](chance) for _ in range(n)])
    assert REMEDIES[why].safety is Safety.MOVE
    whose = (Cause.USER_VALUE, Cause.SESSION_VALUE)
    assert why not in whose or name.startswith("a name"), (
        "nothing tells whose it is, unless that it reads as a name"
    )


@pytest.mark.parametrize("name", ["stock as JSON", "weather in Spanish", "a share of the day"])
@given(seed=st.integers(0, 10**6))
def test_numbers_in_the_same_few_words_are_a_measurement(name: str, seed: int) -> None:
    chance = random.Random(seed)
    assert told([SAYING[name](chance) for _ in range(60)]) is Cause.MEASUREMENT


def test_an_id_that_rises_is_no_counter_and_no_clock() -> None:
    """As those do that begin with their time, in another unit and since another year."""
    chance = random.Random(1)
    rising = [
        (1_790_000_000_000 + 60_000 * at - 1_288_834_974_657 << 22) + chance.getrandbits(22)
        for at in range(60)
    ]
    assert told([str(one) for one in rising]) is Cause.NONCE


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_numbers_that_go_as_fast_as_time_are_a_clock(unit: int) -> None:
    chance = random.Random(1)
    values = [str(int((1.79e9 + 60 * at) * unit) + chance.randrange(unit)) for at in range(60)]
    assert told(values) is Cause.CLOCK


@pytest.mark.parametrize("form", ["{}/25", "Schritt {} von 25", "第{}步"])
def test_steps_that_are_counted_in_each_session_are_a_counter(form: str) -> None:
    chance, at, values, sessions = random.Random(3), [0] * 6, list[str](), list[str]()
    for _ in range(90):
        talk = chance.randrange(6)
        at[talk] += 1
        values.append(form.format(at[talk]))
        sessions.append(f"s{talk}")
    assert told(values, session=sessions) is Cause.COUNTER


def side_by_side(seed: int, n: int = 120, of: int = 16, beside: int = 4) -> list[int]:
    """Which of `of` sessions each request is of: some at a time, later ones later."""
    chance = random.Random(seed)
    return [min(of - 1, at * of // n + chance.randrange(beside)) for at in range(n)]


@pytest.mark.parametrize("form", ["/home/dev{0}/proj{1}", "Fall 2026-{0:05}", "opened at 08:{0:02}:{1:02}"])
@given(seed=st.integers(0, 10**6))
def test_what_a_session_keeps_is_its_own_though_later_ones_have_higher_numbers(form: str, seed: int) -> None:
    talks = side_by_side(seed)
    values, sessions = [form.format(t + 1, t * 7 % 5) for t in talks], [f"s{t}" for t in talks]
    assert told(values, session=sessions) is Cause.SESSION_VALUE
    assert told(values, user=sessions) is Cause.USER_VALUE


def test_what_changes_for_all_sessions_at_once_is_none_of_theirs() -> None:
    talks = side_by_side(1, 400, of=100)
    sessions = [f"s{t}" for t in talks]
    hours = [f"2026-11-03 {9 + at // 40:02}h" for at in range(400)]
    assert told(hours, session=sessions) is Cause.CLOCK
    versions = [("blue", "green", "amber")[at // 134] for at in range(400)]
    assert told(versions, session=sessions) is Cause.VARIANT


@given(st.integers(0, 10**6))
def test_values_are_nobodys_without_a_sign_of_whose_they_are(seed: int) -> None:
    """Users and sessions are told, and have now this and now that."""
    chance = random.Random(seed)
    flags = [
        ", ".join(f"{name}: {chance.random() < 0.5}" for name in ("fees", "pay", "club", "dark"))
        for _ in range(160)
    ]
    users = [f"u{chance.randrange(9)}" for _ in flags]
    assert told(flags, user=users, session=users) in (Cause.UNKNOWN, Cause.VARIANT)
    assert told(flags) in (Cause.UNKNOWN, Cause.VARIANT)
