"""A gRPC client that knows only the server's address gets along: reflection, health, answers, streams, errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from engine.serve import EngineServer
from engine.serving import connection
from tests.engine.serving.live import eventually, give_begin_token, is_idle, serving, settings

SERVICE = "hitmap.engine.v1.Inference"


@dataclass
class Client:
    """Built from what reflection tells."""

    channel: grpc.Channel

    def __post_init__(self) -> None:
        self.reflected = ProtoReflectionDescriptorDatabase(self.channel)
        self._service = descriptor_pool.DescriptorPool(self.reflected).FindServiceByName(SERVICE)

    def answers(self, method: str, asked: dict[str, Any]) -> list[Any]:
        """All messages, of a unary method, too."""
        told = self.call(method, asked)
        return list(told) if self._service.methods_by_name[method].server_streaming else [told]

    def call(self, method: str, asked: dict[str, Any], **how: Any) -> Any:
        """The message, or an iterator of them."""
        told = self._service.methods_by_name[method]
        request, answer = map(message_factory.GetMessageClass, (told.input_type, told.output_type))
        kind = self.channel.unary_stream if told.server_streaming else self.channel.unary_unary
        stub = kind(f"/{SERVICE}/{method}", request.SerializeToString, answer.FromString)
        if not told.server_streaming and how.pop("with_call", False):
            return stub.with_call(request(**asked), timeout=30, **how)
        return stub(request(**asked), **({"timeout": 30} | how))


@pytest.fixture(scope="module")
def client(shared_server: EngineServer) -> Iterator[Client]:
    with grpc.insecure_channel(f"127.0.0.1:{shared_server.grpc_port}") as channel:
        yield Client(channel)


def greedy(max_tokens: int = 16, **more: Any) -> dict[str, Any]:
    return {"max_tokens": max_tokens, "temperature": 0} | more


def test_reflection_and_health(server: EngineServer, client: Client) -> None:
    assert SERVICE in client.reflected.get_services()
    health = health_pb2_grpc.HealthStub(client.channel)
    for name in ("", SERVICE):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_an_answer_and_what_its_metadata_say(server: EngineServer, client: Client) -> None:
    asked = {"text": "told over gRPC, " * 12, "sampling": greedy(), "request_id": "g1"}
    first, _ = client.call("Generate", asked, with_call=True)
    again, call = client.call("Generate", asked, with_call=True)
    assert again.request_id == "g1"
    assert again.model == "tiny"
    assert again.text == first.text == server.frontend.tokenizer.decode(again.token_ids)
    usage = again.usage
    assert usage.prompt_tokens == len(server.frontend.tokenizer.encode(asked["text"]))
    assert usage.completion_tokens == len(again.token_ids)
    assert usage.device_tokens == (usage.prompt_tokens - 1) // 16 * 16 > 0
    assert usage.device_tokens + usage.computed_tokens == usage.prompt_tokens
    trailers = dict(call.trailing_metadata())
    assert trailers["x-request-id"] == "g1"
    assert trailers["cache.hit"] == f"device={usage.device_tokens},host=0,remote=0"
    assert int(trailers["cache.key"]) > 0


def test_a_stream_adds_up_to_the_answer(client: Client) -> None:
    asked = {"text": "a stream", "sampling": greedy(40, ignore_eos=True)}
    whole = client.call("Generate", asked)
    chunks = list(client.call("GenerateStream", asked))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.token_ids] == list(whole.token_ids)
    assert len(whole.token_ids) == 40
    assert [chunk.finish_reason for chunk in chunks] == [0] * (len(chunks) - 1) + [whole.finish_reason]
    assert chunks[-1].usage.completion_tokens == 40


def test_conversations_token_ids_and_stop_strings(server: EngineServer, client: Client) -> None:
    messages = [{"role": "user", "content": "hello"}]
    conversation = {"conversation": {"messages": messages}}
    prompt = server.frontend.tokenizer.encode(server.frontend.tokenizer.chat_prompt(messages))
    assert list(client.call("Tokenize", conversation).token_ids) == prompt
    chat = client.call("Generate", conversation | {"sampling": greedy()})
    by_ids = client.call("Generate", {"tokens": {"ids": prompt}, "sampling": greedy()})
    assert by_ids.text == chat.text
    stop = chat.text[3:5]
    stopped = client.call("Generate", conversation | {"sampling": greedy(), "stop": [stop]})
    assert stopped.text == chat.text[: chat.text.index(stop)]
    assert stopped.finish_reason == 1  # FINISH_REASON_STOP


def test_a_text_gets_the_begin_token_and_a_conversation_has_its_own(
    server: EngineServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, tokenizer = give_begin_token(server, monkeypatch), server.frontend.tokenizer
    messages = [{"role": "user", "content": "hello"}]
    for asked, tokens in (
        ({"text": "hello"}, [begin, *tokenizer.encode("hello")]),
        ({"conversation": {"messages": messages}}, tokenizer.encode(tokenizer.chat_prompt(messages))),
    ):
        assert list(client.call("Tokenize", asked).token_ids) == tokens
        answer = client.call("Generate", asked | {"sampling": greedy(1)})
        assert answer.usage.prompt_tokens == len(tokens)


@pytest.mark.parametrize(
    ("asked", "code", "says"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT, "prompt is missing"),
        ({"text": ""}, grpc.StatusCode.INVALID_ARGUMENT, "empty"),
        ({"text": "a", "model": "gpt"}, grpc.StatusCode.NOT_FOUND, "this server has `tiny`"),
        ({"text": "a", "sampling": {"max_tokens": 0}}, grpc.StatusCode.INVALID_ARGUMENT, "max_tokens"),
        ({"text": "a", "sampling": {"max_tokens": 9999}}, grpc.StatusCode.INVALID_ARGUMENT, "4096"),
        ({"text": "a", "sampling": {"temperature": -1}}, grpc.StatusCode.INVALID_ARGUMENT, "temperature"),
        ({"tokens": {"ids": [1 << 31]}}, grpc.StatusCode.INVALID_ARGUMENT, "vocabulary"),
        ({"conversation": {}}, grpc.StatusCode.INVALID_ARGUMENT, "no messages"),
        ({"conversation": {"messages": [{"role": "x"}]}}, grpc.StatusCode.INVALID_ARGUMENT, "role"),
        ({"text": "a", "cache_salt": "s" * 257}, grpc.StatusCode.INVALID_ARGUMENT, "cache_salt"),
        ({"text": "a", "request_id": "a b"}, grpc.StatusCode.INVALID_ARGUMENT, "1 to 128"),
        ({"text": "a" * (3 << 20)}, grpc.StatusCode.RESOURCE_EXHAUSTED, "larger than max"),
    ],
)
def test_what_cannot_be_served_is_said(
    client: Client, asked: dict[str, Any], code: grpc.StatusCode, says: str
) -> None:
    for method in ("Generate", "GenerateStream"):
        with pytest.raises(grpc.RpcError) as refused:
            client.answers(method, asked)
        assert refused.value.code() is code
        assert says in refused.value.details()


def test_bytes_that_are_no_message(client: Client) -> None:
    stub = client.channel.unary_unary(f"/{SERVICE}/Generate")
    with pytest.raises(grpc.RpcError) as refused:
        stub(b"\xff\xff\xff", timeout=10)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


ENDLESS = {"text": "without end", "sampling": greedy(3000, ignore_eos=True)}


def test_a_cancelled_stream_gives_its_blocks_back(server: EngineServer, client: Client) -> None:
    stream = client.call("GenerateStream", ENDLESS)
    next(stream)
    assert not is_idle(server)
    stream.cancel()
    assert eventually(lambda: is_idle(server))


def test_a_deadline_ends_the_request(server: EngineServer, client: Client) -> None:
    with pytest.raises(grpc.RpcError) as late:
        client.call("Generate", ENDLESS, timeout=0.1)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert eventually(lambda: is_idle(server))


def test_who_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.3)
    options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1)]
    with (
        serving() as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel,
    ):
        stream = Client(channel).call("GenerateStream", ENDLESS)
        next(stream)
        assert eventually(lambda: is_idle(server), 30)
        with pytest.raises(grpc.RpcError) as ended:
            list(stream)
        assert ended.value.code() is grpc.StatusCode.CANCELLED


def test_a_full_queue_is_said_with_when_to_come_again() -> None:
    with (
        serving(settings(max_num_seqs=1, max_waiting=1)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel,
    ):
        client = Client(channel)
        streams = [client.call("GenerateStream", ENDLESS)]
        assert eventually(lambda: server.engine.stats().running == 1)
        streams.append(client.call("GenerateStream", ENDLESS))
        assert eventually(lambda: server.engine.stats().waiting == 1)
        with pytest.raises(grpc.RpcError) as refused:
            client.call("Generate", {"text": "a"})
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        detail = dict(refused.value.trailing_metadata())["grpc-status-details-bin"]
        retry = error_details_pb2.RetryInfo()
        assert status_pb2.Status.FromString(detail).details[0].Unpack(retry)
        assert retry.retry_delay.ToNanoseconds() == 10**9
        for stream in streams:
            stream.cancel()


def test_with_a_token_only_who_shows_it_is_served() -> None:
    with serving(token="secret") as server, grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = channel.unary_unary(f"/{SERVICE}/Tokenize")
        with pytest.raises(grpc.RpcError) as refused:
            stub(b"")
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as passed:
            stub(b"", metadata=[("authorization", "Bearer secret")])
        assert passed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
