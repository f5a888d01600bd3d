"""The configuration file: what is right is taken, what is wrong is named with its line and a remedy."""

from __future__ import annotations

import contextlib
import re
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cachemodel.content import ContentHasher
from collector.chains.key import installation_key
from hitmap.config.example import example
from hitmap.config.load import ConfigError, load
from hitmap.config.model import CollectorConfig, Config, ServerConfig, StoreConfig
from hitmap.config.words import as_settings

BLUE = "servers:\n  blue:\n    url: http://127.0.0.1:8000\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "hitmap.yaml"
    file.write_text(text)
    return file


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, "")) == Config()
    assert load(written(tmp_path, "# nothing\n")) == Config()
    assert load(written(tmp_path, "store:\ncollector:\nservers:\n")) == Config()


def test_the_example_names_every_setting_and_says_the_defaults(tmp_path: Path) -> None:
    text = example()
    assert load(written(tmp_path, text)).servers["blue"].url == "http://127.0.0.1:8000"
    opened = re.sub(r"^( +)# ", r"\1", text, flags=re.MULTILINE)
    tree = yaml.safe_load(opened)
    for section, model in (
        (tree["store"], StoreConfig),
        (tree["collector"], CollectorConfig),
        (tree["servers"]["blue"], ServerConfig),
    ):
        assert set(section) == set(model.model_fields)
    assert load(written(tmp_path, opened)) == load(written(tmp_path, text))


def test_values_come_from_the_environment_and_secrets_do_not_show(tmp_path: Path) -> None:
    text = "collector:\n  token: ${TOKEN}\nstore:\n  dsn: http://u:${PW}@h/$${x}\n"
    config = load(written(tmp_path, text), {"TOKEN": "s3cret", "PW": "pa:ss"})
    assert config.collector.token is not None
    assert config.collector.token.get_secret_value() == "s3cret"
    assert config.store.dsn is not None
    assert config.store.dsn.get_secret_value() == "http://u:pa:ss@h/${x}"
    assert "s3cret" not in config.model_dump_json() + repr(config)


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    config = load(written(tmp_path, BLUE + "    log: logs/blue.jsonl\n    server_log: /var/log/blue\n"))
    assert config.servers["blue"].log == tmp_path / "logs/blue.jsonl"
    assert config.servers["blue"].server_log == Path("/var/log/blue")


def test_a_tokenizer_is_a_word_or_a_path_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/tokenizer.json").write_text("{}")
    for text, told in (
        ("model", str(tmp_path / "model")),
        ("model/tokenizer.json", str(tmp_path / "model/tokenizer.json")),
        ("off", "off"),
        ("approximate", "approximate"),
        ("server", "server"),
    ):
        config = load(written(tmp_path, BLUE + f"    tokenizer: {text}\n    block_size: 64\n"))
        assert (config.servers["blue"].tokenizer, config.servers["blue"].block_size) == (told, 64)


def test_the_key_is_given_or_that_of_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HITMAP_HOME", str(tmp_path))
    given = load(written(tmp_path, "collector:\n  key: ${KEY}\n"), {"KEY": "ab" * 32}).collector
    assert given.hasher.text("x") == ContentHasher(bytes.fromhex("ab" * 32)).text("x")
    assert not (tmp_path / "key").exists()
    assert "ab" * 32 not in given.model_dump_json() + repr(given)
    made = CollectorConfig().hasher.text("x")
    assert made == ContentHasher(installation_key(tmp_path / "key")).text("x") != given.hasher.text("x")


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    assert load(written(tmp_path, "collector: {otlp_http: off}")).collector.otlp_http == "off"
    assert load(written(tmp_path, "collector: {otlp_http: 'off'}")).collector.otlp_http == "off"


MISTAKES = {
    "unknown key": ("colector: {}", "1: colector is unknown: did you mean collector?"),
    "unknown key of a server": (
        BLUE + "    kv_event: x",
        "4: servers.blue.kv_event is unknown: did you mean kv_events?",
    ),
    "nothing like it": (
        "store:\n  zzz: 1",
        "2: store.zzz is unknown: known are dsn, directory, port",
    ),
    "missing": ("servers:\n  blue: {}", "2: servers.blue.url is missing"),
    "no server at all": ("servers:\n  blue:", "2: servers.blue must hold names and values, such as url, "),
    "no number": (
        "collector:\n  spool_limit: many",
        "2: collector.spool_limit: input should be a valid integer",
    ),
    "too small": (BLUE + "    interval: 0", "4: servers.blue.interval: input should be greater than"),
    "no address": ("collector:\n  otlp_grpc: here", "2: collector.otlp_grpc: 'here' is no HOST:PORT"),
    "open to others": (
        "collector:\n  otlp_http: 0.0.0.0:4318",
        "1: collector: 0.0.0.0 can be reached from other machines: set a token",
    ),
    "no url": (
        "servers:\n  b:\n    url: host",
        "3: servers.b.url: no address of a server: write one such as",
    ),
    "odd name": ("servers:\n  'a b':\n    url: http://h", "2: servers.a b: a name has letters, digits"),
    "twice": (BLUE + "    url: http://h", "3: servers.blue.url stands twice, again in line 4"),
    "one server twice": (
        "servers:\n  a: {url: 'http://h:1'}\n  b: {url: 'http://h:1/v1'}",
        "1: servers: a and b have the same url",
    ),
    "variable": ("store:\n  dsn: ${NOT_SET}", "2: store.dsn: ${NOT_SET} is not set in the environment"),
    "a list": ("- a\n- b", "1: the file must hold names and values, such as store, collector, servers"),
    "no yaml": ("store:\n  - a\n b", "3: "),
    "tab": ("store:\n\tdsn: x", "2: found character '\\t'"),
    "python": ("store:\n  dsn: !!python/object/apply:os.getcwd []", "2: "),
    "half a url": ("servers:\n  b:\n    url: 'http://[::1'", "3: servers.b.url: no address of a server"),
    "no dsn": ("store:\n  dsn: not a dsn", "2: store.dsn: no store: a DSN looks like"),
    "a blank token": ("collector:\n  token: ' '", "2: collector.token: a token has letters"),
    "no such user": (
        BLUE + "    log: '~nosuchuser/x'",
        "4: servers.blue.log: ~nosuchuser/x begins with a user",
    ),
    "a NUL": (BLUE + '    log: "a\\0b"', "4: servers.blue.log: a path cannot have a NUL"),
    "a tag that does not fit": ('store:\n  dsn: !!timestamp "x"', "2: store.dsn: "),
    "holds itself": ("store: &a\n  dsn: *a", "1: nested too deeply"),
    "no level of capture": (
        "collector:\n  capture: metadata",
        "2: collector.capture: input should be 'hashes'",
    ),
    "no key": ("collector:\n  key: abc", "2: collector.key: a key has 32 to 128 hexadecimal digits"),
    "no tokenizer": (
        BLUE + "    tokenizer: ./nowhere",
        "4: servers.blue.tokenizer: ",
    ),
    "no block size": (BLUE + "    block_size: 0", "4: servers.blue.block_size: input should be greater"),
    "grows": (
        "\n".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9) if i else 1}]" for i in range(12)),
        "5: nested too deeply",
    ),
}


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        load(file, {})
    assert any(line.startswith(f"{file}:{said}") for line in str(error.value).splitlines()), str(error.value)


def test_all_mistakes_are_told_at_once_in_their_order(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, "a: 1\nstore:\n  port: -1\ncollector:\n  fsync: perhaps\nb: 2\n"))
    assert [line.split(":")[1] for line in str(error.value).splitlines()] == ["1", "3", "5", "6"]


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="config example"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError):
        load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path / "binary")


@given(st.text(st.sampled_from(string.ascii_letters + ":-[]{}&*!|>'\"#%@,? \n\t0"), max_size=80))
def test_whatever_it_holds_it_is_a_config_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = written(tmp_path_factory.mktemp("config"), text)
    with contextlib.suppress(ConfigError):
        load(file, {})


def test_a_mistake_does_not_show_a_secret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(
            written(tmp_path, "servers:\n  b:\n    url: user:s3cret@host\nstore:\n  dsn: user:s3cret@host\n")
        )
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("advice", "in_the_file"),
    [
        ("port 8123 cannot be used; choose another with --port", "choose another with store.port"),
        ("spool x is in use; stop it or choose another --spool", "choose another collector.spool"),
        ("it wants a key, pass --api-key", "it wants a key, pass api_key"),
        ("(--kv-connect), or (--kv-bind)", "(kv_bind: false), or (kv_bind: true)"),
        (
            "start it with --kv-events-config and --otlp-grpc off",
            "--kv-events-config and collector.otlp_grpc off",
        ),
        ("blue--port, a-b--spool", "blue--port, a-b--spool"),
    ],
)
def test_advice_for_a_file_names_settings(advice: str, in_the_file: str) -> None:
    assert as_settings(advice).endswith(in_the_file)
