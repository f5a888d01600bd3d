from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import prometheus
from collector.prometheus import Sample, parse


def samples(body: str, **options: bool) -> list[Sample]:
    return parse(body.encode(), **options).samples


def test_reads_a_recorded_body_completely(run3: Path) -> None:
    body = (run3 / "metrics" / "r3_04_after_external.txt").read_bytes()
    exposition = parse(body)
    lines = [line for line in body.decode().splitlines() if line and not line.startswith("#")]
    assert len(exposition.samples) == len(lines)
    assert exposition.malformed == 0
    hits = [s for s in exposition.samples if s.name == "vllm:external_prefix_cache_hits_total"]
    assert hits == [Sample(hits[0].name, (("engine", "0"), ("model_name", "tiny-llama")), 448.0, None)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a 1", Sample("a", (), 1.0, None)),
        ("a{} 1", Sample("a", (), 1.0, None)),
        ("a 1 1500", Sample("a", (), 1.0, 1.5)),
        ('a\t{b = "c" , }\t-2.5e-3', None),  # a blank before the brace is not allowed
        ('a{b="c",} 1', Sample("a", (("b", "c"),), 1.0, None)),
        ('a{z="1",b="2"} 1', Sample("a", (("b", "2"), ("z", "1")), 1.0, None)),
        (r'a{b="q\"uo\\te\nd}, #"} 1', Sample("a", (("b", 'q"uo\\te\nd}, #'),), 1.0, None)),
        ('a{b="c"} 1 # {trace_id="x"} 0.5', Sample("a", (("b", "c"),), 1.0, None)),
        ('{"my.metric",b="c"} 1', Sample("my.metric", (("b", "c"),), 1.0, None)),
        ('a{"my.label"="c"} 1', Sample("a", (("my.label", "c"),), 1.0, None)),
        ("a +Inf", Sample("a", (), math.inf, None)),
        ("a", None),
        ("a one", None),
        ("a 1_000", None),
        ("a 1 2 3", None),
        ("1a 1", None),
        ('a{b="c} 1', None),
        ('a{b="c"d="e"} 1', None),
        ('a{b="c",b="d"} 1', None),
        ("a{b} 1", None),
        ("{} 1", None),
        ("a{,} 1", None),
    ],
)
def test_lines(line: str, expected: Sample | None) -> None:
    exposition = parse(f"before 1\n{line}\nafter 2\n".encode())
    assert [s for s in exposition.samples if s.name not in ("before", "after")] == (
        [expected] if expected else []
    )
    assert len(exposition.samples) == (3 if expected else 2), "the lines around it are kept"
    assert exposition.malformed == (0 if expected else 1)
    assert exposition.first_malformed == ("" if expected else line)


def test_nan_is_read_and_bad_utf8_is_malformed() -> None:
    assert math.isnan(samples("a NaN\n")[0].value)
    exposition = parse(b'a{b="\xff"} 1\nc 2\n')
    assert ([s.name for s in exposition.samples], exposition.malformed) == (["c"], 1)


def test_openmetrics_counts_in_seconds_and_ends_with_eof() -> None:
    body = "# TYPE a counter\n# UNIT a seconds\n# HELP a it's \na_total 1 1.5\na_created 1\n# EOF\n"
    exposition = parse(body.encode(), openmetrics=True)
    assert exposition.samples[0].time_s == 1.5
    assert exposition.whole
    family, suffix = exposition.family_of("a_total")
    assert (family.name, family.kind, family.unit, suffix) == ("a", "counter", "seconds", "_total")
    assert not parse(body.removesuffix("# EOF\n").encode(), openmetrics=True).whole


def test_families_and_suffixes_of_a_recorded_body(run1: Path) -> None:
    exposition = parse((run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes())
    found = {
        name: (family.name, family.kind, suffix)
        for name in (
            "vllm:prefix_cache_hits_total",
            "vllm:prefix_cache_hits_created",
            "vllm:iteration_tokens_total_bucket",
            "vllm:kv_cache_usage_perc",
            "http_request_size_bytes_created",
        )
        for family, suffix in [exposition.family_of(name)]
    }
    assert list(found.values()) == [
        ("vllm:prefix_cache_hits", "counter", "_total"),
        ("vllm:prefix_cache_hits", "counter", "_created"),
        ("vllm:iteration_tokens_total", "histogram", "_bucket"),
        ("vllm:kv_cache_usage_perc", "gauge", ""),
        ("http_request_size_bytes", "summary", "_created"),
    ]


def test_a_gauge_that_happens_to_end_in_created_stays_a_gauge() -> None:
    exposition = parse(b"# TYPE pods_created gauge\npods_created 3\n")
    assert exposition.family_of("pods_created") == (exposition.families["pods_created"], "")


def test_every_cut_of_a_body_gives_only_right_values(run1: Path) -> None:
    body = (run1 / "metrics" / "r1_10_after_mixed.txt").read_bytes()
    whole = parse(body).samples
    for at in range(0, len(body), 997):
        part = parse(body[:at], whole=False).samples
        assert part == whole[: len(part)]


def test_an_unterminated_last_line_counts_where_the_body_is_whole() -> None:
    assert [s.value for s in samples("a 1\nb 23", whole=True)] == [1.0, 23.0]
    assert [s.value for s in samples("a 1\nb 23", whole=False)] == [1.0]


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_are_survived(body: bytes, openmetrics: bool, whole: bool) -> None:
    exposition = parse(body, openmetrics=openmetrics, whole=whole)
    assert len(exposition.samples) + exposition.malformed <= body.count(b"\n") + 1


_names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]*", fullmatch=True)
_label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)
_values = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\ufffd"))


@given(
    _names,
    st.dictionaries(_label_names, _values, max_size=4),
    st.floats(allow_nan=False),
    st.integers(0, 10**13),
)
def test_what_is_written_by_the_book_is_read_back(
    name: str, labels: dict[str, str], value: float, ms: int
) -> None:
    def quote(text: str) -> str:
        escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        return f'"{escaped}"'

    inner = ",".join(f"{key}={quote(text)}" for key, text in labels.items())
    line = f"{name}{{{inner}}} {value!r} {ms}\n"
    assert samples(line) == [Sample(name, tuple(sorted(labels.items())), value, ms * 1e-3)]


@pytest.mark.parametrize("line", ['a{b="%s"} 1', "a%s 1", '{"%s"} 1', 'a{b%s="c"} 1'])
def test_names_and_labels_have_an_end(line: str) -> None:
    exposition = parse(f"{line % ('x' * 9000)}\n{line % ('x' * 7000)}\n".encode())
    assert exposition.malformed == 1
    assert len(exposition.samples) == 1


def test_only_short_label_texts_are_remembered() -> None:
    before = prometheus._short_labels.cache_info().currsize
    parse("".join(f'a{{b="{"x" * 2000}{n}"}} 1\n' for n in range(50)).encode())
    assert prometheus._short_labels.cache_info().currsize == before
