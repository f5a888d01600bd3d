"""The reference engine under load in phases, one thing different in each, watched as `hitmap attach` does it.

What a pass over the device takes is what faults say that are on all the time (SLOW_DEVICE), and the model so small that
little is added: so the ground truth does not hang on who else uses the machine.
"""

from __future__ import annotations

import json
import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from clickhouse_connect.driver.client import Client
from safetensors.torch import save_file

from analysis.attribution.caused.told import ToldSide, told
from analysis.attribution.model import Side
from analysis.attribution.reader import read_side
from analysis.report.metrics import METRICS
from analysis.selection import Selection
from collector.attach import Attachment, AttachOptions, detect
from collector.chains.settings import ChainSettings
from engine.model import demo
from engine.model.config import read_config
from hitmap.commands._engine_faults import ask
from hitmap.demo.engine_process import engine
from hitmap.demo.stage import stage
from hitmap.load import run
from hitmap.load.arrivals import arrivals
from hitmap.load.plan import Body, Plan, Planned
from store.client import connect

SERVER = "attributed"
ANY = "tcp://127.0.0.1:*"
STEP_MS, TOKEN_MS = 12.0, 0.2
SLOW_DEVICE = (f"step_ms={STEP_MS}", f"token_ms={TOKEN_MS}", "layer=host,delay_ms=20")
OPTIONS = (
    "--max-num-batched-tokens",
    "64",
    "--max-num-seqs",
    "16",
    "--threads",
    "1",
    "--max-model-len",
    "1024",
)
SECONDS = 45.0
TEMPLATES, SYSTEM_TOKENS, CLOCK_TOKENS = 12, 256, 8
ASK_TOKENS, ANSWER_TOKENS = (64, 160), (6, 20)


@dataclass(frozen=True)
class Phase:
    """name: label of its requests. rate: requests a second. clock: the time of day stands at the top of each prompt.
    fault: what is on meanwhile, empty for nothing. seed: phases of one seed have the
    same system prompts, lengths and times, and questions of their own."""

    name: str
    rate: float
    clock: bool = False
    fault: str = ""
    seed: int = 1
    seconds: float = SECONDS


class Played(NamedTuple):
    """A phase as the store tells it. own_ms: what a step of the engine took beside what its device takes, faults of
    the phase included: as long in phases of one load without a fault, unless others use the machine."""

    side: Side
    told: ToldSide
    own_ms: float


class Watched(NamedTuple):
    """An engine that is watched. dsn: of the store; log: where those who ask write what they sent."""

    url: str
    dsn: str
    log: Path


@contextmanager
def watched(
    home: Path, options: Sequence[str], then: Callable[[str], None] = lambda _: None
) -> Iterator[Watched]:
    """Serve and attach. then: called with the DSN once all that was told is in the store."""
    home.mkdir()
    log = home / "requests.jsonl"
    with stage(home) as ground:
        log.touch()
        doors = ["--otlp", ground.otlp, "--service-name", SERVER, "--kv-events", ANY, "--kv-replay", ANY]
        given = ["--model", str(small_model(home / "small")), *OPTIONS, *options]
        given += [word for spec in SLOW_DEVICE for word in ("--inject", spec)]
        with engine(home / "engine.log", [*doors, *given]) as serving:
            found = detect(serving.url, otlp=ground.otlp)
            settings = AttachOptions(SERVER, log=log, interval_s=0.5, chains=ChainSettings("server"))
            with Attachment(found, settings, ground.pipeline.sink, hasher=ground.hasher):
                yield Watched(serving.url, ground.dsn, log)
                ground.watched(SERVER, found)
        ground.drain()
        then(ground.dsn)


def play(home: Path, phases: Sequence[Phase], options: Sequence[str]) -> dict[str, Played]:
    """Send phases one after the other; what the store tells of each, by name."""
    read: dict[str, Played] = {}

    def look(dsn: str) -> None:
        with _connected(dsn) as client:
            for phase in phases:
                side = read_side(client, _selection(phase.name), METRICS["e2e"])
                read[phase.name] = Played(side, told(client, side), _own_ms(client, side))

    with watched(home, options, look) as on:
        for phase in phases:
            send(phase, on)
    return read


def _own_ms(client: Client, side: Side) -> float:
    rows = client.query(
        "SELECT metric, labels['phase'], sum(delta) FROM samples JOIN series USING (fingerprint)"
        " WHERE metric IN ('step.time.sum', 'step.time.count', 'step.tokens_by_phase')"
        " AND time BETWEEN toDateTime64({begin:Float64}, 6) AND toDateTime64({end:Float64}, 6) GROUP BY 1, 2",
        parameters={"begin": side.begin, "end": side.end},
    ).result_rows
    grown = {(metric, phase): float(value) for metric, phase, value in rows}
    steps = grown["step.time.count", ""]
    return (
        1e3 * grown["step.time.sum", ""] / steps
        - STEP_MS
        - TOKEN_MS * grown["step.tokens_by_phase", "prefill"] / steps
    )


def send(phase: Phase, on: Watched, stopping: threading.Event | None = None) -> None:
    """A phase's requests, and wait for their answers. stopping: ends it early."""
    with _fault(on.url, phase.fault):
        plan = _plan(phase).limited(phase.seconds)
        found = run(plan, on.url, on.log, {"phase": phase.name}, timeout_s=60, stopping=stopping)
    assert stopping or found.completed == found.sent, f"{phase.name}: {found.errors}"


@contextmanager
def _fault(url: str, spec: str) -> Iterator[None]:
    if not spec:
        yield
        return
    number = ask("POST", url, None, spec)[-1].id
    yield
    gone = urllib.request.Request(f"{url}/v1/admin/faults?id={number}", method="DELETE")
    urllib.request.urlopen(gone, timeout=10).close()


@contextmanager
def _connected(dsn: str) -> Iterator[Client]:
    client = connect(dsn)
    yield client
    client.close()


def _selection(phase: str) -> Selection:
    return Selection(phase, "labels['phase'] = {phase:String}", {"phase": phase})


def _plan(phase: Phase) -> Plan:
    """A question each, behind one of a few system prompts."""
    systems = [_ids(Random(f"system {number}"), SYSTEM_TOKENS) for number in range(TEMPLATES)]

    def requests() -> Iterator[Planned]:
        random, fresh = Random(f"{phase.seed}"), Random(f"{phase.name}")
        for due_s in arrivals("poisson", phase.rate, phase.seed):
            asked = [*random.choice(systems), *_ids(fresh, random.randrange(*ASK_TOKENS))]
            clock = _ids(fresh, CLOCK_TOKENS) if phase.clock else []
            body: Body = {"prompt": [*clock, *asked], "temperature": 0, "ignore_eos": True}
            body["max_tokens"] = random.randrange(*ANSWER_TOKENS)
            yield Planned(due_s, partial(_body, body), {})

    return Plan(phase.name, requests, lambda: arrivals("poisson", phase.rate, phase.seed))


def _body(body: Body, _: Sequence[str]) -> Body:
    return body


def _ids(random: Random, tokens: int) -> list[int]:
    return [random.randrange(300, 2000) for _ in range(tokens)]


def small_model(folder: Path, layers: int = 2) -> Path:
    """A folder with a model so small that it adds little to what its device is said to take."""
    config = json.loads((demo.FOLDER / "config.json").read_text())
    config |= {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
    }
    config |= {"num_key_value_heads": 2, "head_dim": 8}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(demo.FOLDER / name, folder / name)
    save_file(demo.draw_weights(read_config(folder), 0), folder / "model.safetensors")
    return folder
