"""The Prometheus file: its shape, its names, and what is left out with a reason."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace

import yaml

from analysis.alerts.model import Prometheus
from analysis.alerts.prometheus import to_prometheus
from analysis.alerts.table import rules, with_settings
from cachemodel.observed import BY_NAME, EXECUTABLE, GPU_ID, HOST, PID, SOURCE, THREAD_ID, Metric

_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)[{\[]")
_BY_PATTERN = re.compile(r'__name__=~"([^"]+)"')
_LABELS = re.compile(r"\b([a-z_]+)(?:=|!=|=~)\"")


def _translated(metric: Metric) -> str:
    """A name as OTLP to Prometheus makes it: words joined by _, a unit in braces dropped, _total for a monotonic sum,
    _ratio last for a gauge of unit 1."""
    words = re.split(r"[^a-zA-Z0-9]+", metric.name)
    if metric.kind == "gauge" and metric.unit == "1":
        words = [word for word in words if word != "ratio"] + ["ratio"]
    elif metric.unit == "s":
        words.append("seconds")
    elif metric.unit == "By":
        words.append("bytes")
    return "_".join([*words, *(["total"] if metric.kind == "counter" else [])])


def _exposed() -> set[str]:
    """What vLLM and SGLang expose."""
    names = set()
    for dialect in ("vllm", "sglang"):
        for metric in importlib.import_module(f"collector.dialects.{dialect}.metrics").METRICS:
            for alias in metric.aliases:
                names.add(f"{alias.raw}_total" if metric.kind == "counter" else alias.raw)
    return names


def test_it_is_a_file_of_alerting_rules() -> None:
    read = yaml.safe_load(to_prometheus(rules()))
    (group,) = read["groups"]
    assert read.keys() == {"groups"}
    assert group.keys() == {"name", "rules"}
    said = [rule.id for rule in rules() if rule.prometheus.expr]
    assert [rule["alert"] for rule in group["rules"]] == said
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"].keys() == {"severity"}
        assert rule["annotations"].keys() == {"summary", "description"}
        assert re.fullmatch(r"\d+s", rule.get("for", "0s"))
        for opened, closed in ("()", "[]", "{}"):
            assert rule["expr"].count(opened) == rule["expr"].count(closed)


def test_what_cannot_be_said_is_a_comment_with_its_reason() -> None:
    text = to_prometheus(rules())
    comments = " ".join(line.removeprefix("# ") for line in text.splitlines() if line.startswith("#"))
    for rule in rules():
        if not rule.prometheus.expr:
            assert f"{rule.id}: not here: {rule.prometheus.reason}" in comments
    (own,) = [replace(rules()[0], prometheus=Prometheus())]
    assert "hit-ratio-low: not here: the rule has no expression for Prometheus" in to_prometheus([own])
    assert yaml.safe_load(to_prometheus([own])) == {"groups": [{"name": "hitmap", "rules": []}]}


def test_thresholds_are_those_asked_for() -> None:
    table = with_settings(
        rules(), ["hit-ratio-low.threshold=0.123", "hit-ratio-low.for=7", "queue-grows.enabled=false"]
    )
    said = {rule["alert"]: rule for rule in yaml.safe_load(to_prometheus(table))["groups"][0]["rules"]}
    assert said["hit-ratio-low"]["expr"].rstrip().endswith("< 0.123")
    assert said["hit-ratio-low"]["for"] == "7s"
    assert "queue-grows" not in said


def test_a_text_of_a_rule_is_no_template_of_prometheus() -> None:
    own = replace(rules()[0], means='{{ query "up" }}')
    (said,) = yaml.safe_load(to_prometheus([own]))["groups"][0]["rules"]
    assert "{{" not in said["annotations"]["description"]


def test_names_are_those_that_servers_expose_and_that_otlp_becomes() -> None:
    known = {_translated(metric) for metric in BY_NAME.values()}
    exposed = _exposed()
    labels = {"__name__", "hitmap_tlb_flush_reason", "system_paging_fault_type"}
    labels |= {name.replace(".", "_") for name in (HOST, PID, EXECUTABLE, SOURCE, THREAD_ID, GPU_ID)}
    for rule in rules():
        named = set(_SELECTOR.findall(re.sub(r'"[^"]*"', '""', rule.prometheus.expr)))
        for pattern in "|".join(_BY_PATTERN.findall(rule.prometheus.expr)).split("|"):
            named |= {pattern.replace("[:_]", sign) for sign in ":_"} - {""}
        assert bool(named) == bool(rule.prometheus.expr), rule.id
        for name in named:
            assert name in exposed | known, name
        assert set(_LABELS.findall(rule.prometheus.expr)) <= labels


def test_the_translation_is_the_one_of_opentelemetry() -> None:
    """As documented of its default strategy: https://prometheus.io/docs/guides/opentelemetry/"""
    assert _translated(BY_NAME["process.paging.faults"]) == "process_paging_faults_total"
    assert _translated(BY_NAME["hitmap.gpu.tensor.miss_ratio"]) == "hitmap_gpu_tensor_miss_ratio"
    assert _translated(BY_NAME["hw.gpu.memory.usage"]) == "hw_gpu_memory_usage_bytes"
    assert _translated(BY_NAME["process.cpu.time"]) == "process_cpu_time_seconds_total"
