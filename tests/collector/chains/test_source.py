"""The source that follows a log for its prompts: what it stores, leaves out and says of itself."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from collector.chains import source
from collector.chains.approximate import Approximation
from collector.chains.local import read_tokenizer
from collector.chains.open import BLOCK_SIZE, block_size
from collector.chains.prompt import NO_PROMPT, REFUSED
from collector.chains.server import ServerTokenizer
from collector.chains.settings import Capture
from collector.chains.source import MISMATCH, NO_TOKENIZER, NOT_TOKENISED, ChainTail
from collector.spool import Spool
from tests.collector.chains.support import logged, tail, write
from tests.collector.support import HASHER, Server, take, text, wait_until


def run(chains: ChainTail) -> None:
    """Begin, take what is there, and end."""
    chains.start()
    wait_until(lambda: chains._prompts.behind_bytes() == 0)
    chains.stop()


def test_the_row_of_a_prompt(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    ids = list(range(100, 150))
    tools = [{"name": "f"}]
    more = {"cache_salt": "t1", "cache_prompt": False, "model": "big"}
    body = {"messages": [{"role": "system", "content": "Be kind."}], "tools": tools, **more}
    partly = [*ids[:40], *range(500, 520)]
    write(log, [logged(1, body=body, prompt_token_ids=ids), logged(2, body={"prompt": partly})])
    write(log, [logged(3, body={"prompt": ids[:40]})])
    run(tail(log, spool, None))
    first, second, third = take(spool, "chains")
    contents = list(HASHER.chain(ids, 16))
    assert first["blocks"] == contents
    assert (first["request_id"], first["model"], first["told_by"]) == ("r1", "big", "server")
    assert (first["prompt_tokens"], first["block_size"], first["reads_off"]) == (50, 16, "cache_prompt")
    assert first["isolation"] == HASHER.isolation(0, ["t1"])
    assert first["template"] != 0
    assert (first["split_depth"], first["split_tokens"], first["pieces_from"]) == (0, 0, 0)
    assert sum(first["piece_tokens"]) == 50
    cuts = [sum(first["piece_tokens"][:i]) for i in range(len(first["piece_tokens"]) + 1)]
    assert first["pieces"] == [HASHER.piece(ids[a:b]) for a, b in itertools.pairwise(cuts)]
    assert second["blocks"][:2] == contents[:2]
    assert (second["isolation"], second["template"], second["reads_off"]) == (0, 0, "")
    assert (second["split_depth"], second["split_tokens"]) == (2, 8)
    assert second["pieces_from"] == max(cut for cut in cuts if cut <= 40)
    assert second["pieces_from"] + sum(second["piece_tokens"]) == 60
    assert second["pieces"][0] not in first["pieces"]
    assert (third["split_depth"], third["split_tokens"], third["pieces"]) == (2, 8, []), (
        "nothing of it is new"
    )


def test_the_order_is_that_of_sending(tmp_path: Path, spool: Spool) -> None:
    """The first to be sent was the last to end: what the other shares with it is told of the other."""
    log = tmp_path / "log"
    write(log, [logged(2, "the same words", total_s=0.5), logged(1, "the same words", total_s=20)])
    run(tail(log, spool, Approximation()))
    assert [(row["request_id"], row["split_tokens"]) for row in take(spool, "chains")] == [
        ("r1", 0),
        ("r2", 3),
    ]


def test_counts_that_are_not_the_servers_make_no_chain(tmp_path: Path, spool: Spool, run1: Path) -> None:
    log, tokenizer = tmp_path / "log", read_tokenizer(run1.parent / "model")
    right = logged(1, "hello")
    right["usage"] = {"prompt_tokens": 2}
    count = len(tokenizer._whole("hello", True).ids)
    right["usage"]["prompt_tokens"] = count
    write(log, [right, logged(2, "hello", usage={"prompt_tokens": count + 1}), logged(3, "hello")])
    chains = tail(log, spool, tokenizer)
    run(chains)
    assert [row["request_id"] for row in take(spool, "chains")] == ["r1", "r3"], (
        "no count is none to be wrong"
    )
    status = chains.status()
    assert (status.state, status.counts["chains"]) == ("running", 2)
    assert "1 without a count to compare" in status.detail
    assert f"left out 1 x {MISMATCH}" in status.detail


def test_a_wrong_tokenizer_is_found_out(tmp_path: Path, spool: Spool, run1: Path) -> None:
    log = tmp_path / "log"
    wrong = [logged(i, "hello", usage={"prompt_tokens": 500}) for i in range(source.SURE)]
    write(log, [*wrong, logged(99, "hello")])
    chains = tail(log, spool, read_tokenizer(run1.parent / "model"))
    run(chains)
    assert take(spool, "chains") == [], "nor one that could not be compared"
    status = chains.status()
    assert status.state == "failing"
    assert "instead of 500" in status.detail
    assert "--tokenizer" in status.detail


def test_an_approximation_says_so(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    write(log, [logged(1, "one two three", usage={"prompt_tokens": 7})])
    chains = tail(log, spool, Approximation())
    run(chains)
    (row,) = take(spool, "chains")
    assert (row["told_by"], row["prompt_tokens"]) == ("approximation", 3)
    assert "an approximation, their counts are rough" in chains.status().detail


def test_lines_that_give_no_chain(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    aborted: dict[str, Any] = logged(4, client_request_id="c4")
    del aborted["response_id"]
    write(
        log,
        [
            logged(1, body={}),
            logged(2, status=400),
            logged(3, response_id="chatcmpl-hitmap-canary-7"),
            aborted,
            {"response_id": "no time", "prompt": "x"},
        ],
    )
    with log.open("ab") as file:
        file.write(b"no json\n[1]\n")
    chains = tail(log, spool, Approximation())
    run(chains)
    assert [row["request_id"] for row in take(spool, "chains")] == ["c4"], "aborted before it had a name"
    assert dict(chains._reasons) == {NO_PROMPT: 1, REFUSED: 1}


def test_without_a_tokenizer_it_says_what_to_set(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    with Server() as server:  # one that has no /tokenize
        chains = tail(log, spool, ServerTokenizer(server.url, "", llama_cpp=False))
        chains.start()
        wait_until(lambda: chains.status().detail == NO_TOKENIZER)
        write(log, [logged(1), logged(2, prompt_token_ids=[1, 2])])
        wait_until(lambda: chains.status().state == "running")
        chains.stop()
    assert [row["request_id"] for row in take(spool, "chains")] == ["r2"], "ids in the log need none"
    assert f"1 x {NOT_TOKENISED}" in chains.status().detail


def test_a_server_in_trouble_is_asked_again(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "RETRY_S", 0.01)
    log = tmp_path / "log"
    write(log, [logged(1, usage={"prompt_tokens": 3}), logged(2, usage={"prompt_tokens": 3})])
    with Server({"POST /tokenize": text("{}", status=503)}) as server:
        chains = tail(log, spool, ServerTokenizer(server.url, "", llama_cpp=False))
        chains.start()
        wait_until(lambda: chains.status().state == "failing")
        good = text('{"tokens": [7, 8, 9]}')
        server.answers["POST /tokenize"] = good
        wait_until(lambda: chains.status().counts.get("chains") == 2)
        server.answers["POST /tokenize"] = text("{}", status=500)
        write(log, [logged(3), logged(4, prompt_token_ids=[5])])
        wait_until(lambda: chains.status().counts.get("chains") == 3)
        chains.stop()
    assert [row["told_by"] for row in take(spool, "chains")] == ["server"] * 3
    assert f"1 x {source.UNANSWERED}" in chains.status().detail, "one prompt is not worth all that follow"


def test_what_has_a_chain_in_the_store_gets_no_second(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    write(log, [logged(1, "the same words"), logged(2, "others"), logged(3, "the same words too")])
    asked: list[Any] = []

    def known(server: str, ids: Any, since_s: float, until_s: float) -> set[str]:
        asked.append((server, list(ids), until_s - since_s))
        return {"r1"}

    chains = tail(log, spool, Approximation(), known=known)
    chains.start()
    wait_until(lambda: chains.status().counts.get("chains") == 2)
    write(log, [logged(4)])
    wait_until(lambda: chains.status().counts.get("chains") == 3)
    chains.stop()
    rows = take(spool, "chains")
    assert [row["request_id"] for row in rows] == ["r2", "r3", "r4"]
    assert rows[1]["split_tokens"] == 3, "it is remembered all the same"
    assert asked == [("s", ["r1", "r2", "r3"], 2.0)], "asked once, of what was there before"


def test_a_store_that_does_not_answer_costs_nothing(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    write(log, [logged(1)])

    def known(*_: Any) -> set[str]:
        raise OSError("down")

    run(tail(log, spool, Approximation(), known=known))
    assert len(take(spool, "chains")) == 1


def test_half_lines_wait_for_their_end(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    line = json.dumps(logged(1)).encode() + b"\n"
    log.write_bytes(line[:20])
    chains = tail(log, spool, Approximation())
    chains.start()
    wait_until(lambda: chains.status().state == "waiting")
    with log.open("ab") as file:
        file.write(line[20:])
    wait_until(lambda: chains.status().counts.get("chains") == 1)
    chains.stop()


def test_block_sizes_by_what_servers_say() -> None:
    assert block_size({"block_size": "32"}) == (32, "")
    assert block_size({"page_size": "64"}) == (64, "")
    assert block_size({})[0] == block_size({"block_size": "None"})[0] == BLOCK_SIZE
    size, remark = block_size({"page_size": "1"})
    assert size == BLOCK_SIZE
    assert "do not match" in remark


@pytest.mark.parametrize("capture", [Capture.HASHES, Capture.REDACTED])
def test_the_spool_never_sees_what_is_not_kept(capture: Capture, tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "log"
    write(log, [logged(1, "My name is Zaphira and so on", body_too="Zaphira")])
    run(tail(log, spool, Approximation(), capture=capture))
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != log)
    assert b"approximation" in files
    assert b"Zaphira" not in files
    assert (b"and so on" in files) == (capture is Capture.REDACTED)
