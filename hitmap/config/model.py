"""What may stand in hitmap's configuration file. Field names are the options of the commands, with underscores.

This table is the one place for names, defaults and their meaning: `hitmap config example` prints it, `load` checks it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    model_validator,
)

from cachemodel.address import server_url
from cachemodel.content import ContentHasher
from collector.chains.key import installation_key, parse_key
from collector.chains.settings import WORDS, Capture
from collector.detection import is_loopback
from collector.otlp.check import DAY_S, Window
from store.embedded import home

OFF = "off"


def _unquoted_off(value: object) -> object:
    return OFF if value is False else value  # YAML takes a bare `off` for a boolean


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text != OFF and (not host or not port.isdigit() or int(port) > 65535):
        raise ValueError(f"{text!r} is no HOST:PORT, for example 127.0.0.1:4317, nor {OFF!r}")
    return text


def _server_url(text: str) -> str:
    if not _is_http(text):  # the text is not shown: it may hold a password
        raise ValueError("no address of a server: write one such as http://127.0.0.1:8000")
    return text


def _store_dsn(value: SecretStr) -> SecretStr:
    if not _is_http(value.get_secret_value()):
        raise ValueError("no store: a DSN looks like http://user:password@host:8123/database")
    return value


def _is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _no_blanks(value: SecretStr) -> SecretStr:
    if not value.get_secret_value() or any(not 32 < ord(c) < 127 for c in value.get_secret_value()):
        raise ValueError("a token has letters, digits and signs, without blanks: it goes into a header")
    return value


def _key(value: SecretStr) -> SecretStr:
    parse_key(value.get_secret_value())
    return value


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    """Paths in a file mean what they mean beside it, wherever hitmap is started."""
    folder: Path = (info.context or {}).get("folder", Path())
    if "\0" in str(path):
        raise ValueError("a path cannot have a NUL in it")
    try:
        return folder / path.expanduser()
    except RuntimeError:
        raise ValueError(f"{path} begins with a user that is not known") from None


def tokenizer_setting(text: str, folder: Path = Path()) -> str:
    """What --tokenizer says, a path as one that leads there from anywhere. Raises ValueError in words for a person."""
    if not text or text in WORDS:
        return text
    path = folder / Path(text).expanduser()
    if not path.is_file() and not (path / "tokenizer.json").is_file():
        raise ValueError(
            f"{path} is no tokenizer.json, nor a folder with one; it may also be {', '.join(WORDS[:-1])} or {WORDS[-1]}"
        )
    return str(path)


def _tokenizer(text: str, info: ValidationInfo) -> str:
    return tokenizer_setting(text, (info.context or {}).get("folder", Path()))


Tokenizer = Annotated[str, BeforeValidator(_unquoted_off), AfterValidator(_tokenizer)]
Address = Annotated[str, BeforeValidator(_unquoted_off), AfterValidator(_address)]
ServerUrl = Annotated[str, AfterValidator(_server_url)]
StoreDsn = Annotated[SecretStr, AfterValidator(_store_dsn)]
Key = Annotated[SecretStr, AfterValidator(_key)]
Token = Annotated[SecretStr, AfterValidator(_no_blanks)]
NearPath = Annotated[Path, AfterValidator(_from_folder)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreConfig(_Part):
    """Where rows live."""

    dsn: StoreDsn | None = Field(
        default=None,
        description="a ClickHouse server, http://user:password@host:8123/database; without it the embedded store",
    )
    directory: NearPath | None = Field(
        default=None, description="folder of the embedded store; default: store/ in $HITMAP_HOME"
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="where the embedded store answers (Grafana, curl); 0: any free port",
    )


class CollectorConfig(_Part):
    """How telemetry comes in."""

    otlp_grpc: Address = Field(default="127.0.0.1:4317", description="OTLP/gRPC listens here; 'off': nowhere")
    otlp_http: Address = Field(default="127.0.0.1:4318", description="OTLP/HTTP listens here; 'off': nowhere")
    token: Token | None = Field(
        default=None,
        description="what senders must show as 'authorization: Bearer TOKEN'; needed off loopback",
    )
    spool: NearPath | None = Field(
        default=None,
        description="folder for what is accepted and not yet in the store; default: spool/ in $HITMAP_HOME",
    )
    spool_limit: int = Field(
        default=1024, ge=1, description="MB; when this much waits, senders are asked to try again later"
    )
    fsync: bool = Field(
        default=False, description="flush the disk before each acknowledgement: safe against power cuts too"
    )
    max_age: int = Field(
        default=400, ge=1, le=900, description="days; what is older is left out, wherever it comes from"
    )
    capture: Capture = Field(
        default=Capture.HASHES,
        description=(
            "of prompts: hashes (keyed, no text), redacted (texts of the request log without what looks personal) or"
            " full (those as they are, and what senders put on spans and logs)"
        ),
    )
    key: Key | None = Field(
        default=None,
        description=(
            "of the hashes, 32 or more hexadecimal digits; collectors of one store share it; default: the one in"
            " $HITMAP_HOME/key, made once"
        ),
    )

    @property
    def hasher(self) -> ContentHasher:
        """Hashes with the key of the configuration, else with that of this installation, which is made now where there
        is none. Raises UserError."""
        return ContentHasher(
            parse_key(self.key.get_secret_value()) if self.key else installation_key(home() / "key")
        )

    @property
    def window(self) -> Window:
        """Which times are kept."""
        return Window(max_age_s=self.max_age * DAY_S)

    @model_validator(mode="after")
    def _needs_token(self) -> CollectorConfig:
        for address in (self.otlp_grpc, self.otlp_http):
            host = address.rpartition(":")[0]
            if address != OFF and not is_loopback(host) and not self.token:
                raise ValueError(
                    f"{host} can be reached from other machines: set a token that senders must show"
                )
        return self


class ServerConfig(_Part):
    """One LLM server to watch."""

    url: ServerUrl = Field(description="where its API is, such as http://127.0.0.1:8000")
    services: tuple[str, ...] = Field(default=(), description="what its spans call it (service.name)")
    kv_events: str = Field(
        default="", description="its KV events, as in --kv-events-config; without it what the server says"
    )
    replay: str = Field(default="", description="its replay_endpoint")
    kv_bind: bool | None = Field(
        default=None, description="whether hitmap binds the endpoint; without it vLLM's rule"
    )
    kv_ranks: int = Field(default=1, ge=1, le=1024, description="data-parallel ranks, one port each")
    log: NearPath | None = Field(default=None, description="JSONL log of its responses, followed as it grows")
    server_log: NearPath | None = Field(default=None, description="its own log, followed as it grows")
    label_fields: tuple[str, ...] = Field(
        default=(), description="fields of the request log to keep as labels"
    )
    tokenizer: Tokenizer = Field(
        default="",
        description="of prompts in the log: server, a model's folder, approximate or off; default: server, if it will",
    )
    block_size: int | None = Field(
        default=None, ge=1, le=65536, description="tokens of a block; without it what the server says"
    )
    drain: bool = Field(
        default=False, description="also read endpoints that are empty once read (TensorRT-LLM)"
    )
    interval: float = Field(default=5.0, ge=0.05, le=3600, description="seconds between scrapes")
    api_key: Token | None = Field(default=None, description="bearer token that the server wants")


ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)]


def _each_once(servers: dict[str, ServerConfig]) -> dict[str, ServerConfig]:
    names: dict[str, str] = {}
    for name, server in servers.items():
        first = names.setdefault(server_url(server.url), name)
        if first != name:
            raise ValueError(f"{first} and {name} have the same url: everything it tells would count twice")
    return servers


Section = BeforeValidator(lambda value: {} if value is None else value)  # one whose settings are all comments


class Config(_Part):
    """The whole file."""

    store: Annotated[StoreConfig, Section] = StoreConfig()
    collector: Annotated[CollectorConfig, Section] = CollectorConfig()
    servers: Annotated[dict[ServerName, ServerConfig], Section, AfterValidator(_each_once)] = Field(
        default={}, description="the servers to watch, by the name that reports show"
    )
