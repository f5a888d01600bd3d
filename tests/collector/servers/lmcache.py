"""LMCache in an engine's process and as a server of its own, made from the source of 0.5.6, not run live.

The server's names are those that opentelemetry-exporter-prometheus makes of its instruments (put through it once).
Each lookup asks for 1,024 tokens and finds 512 of them in L1 and 256 in L2; of the 768, 640 are loaded.
"""

from __future__ import annotations

from tests.collector.servers import vllm
from tests.collector.servers.sglang import histogram, page
from tests.collector.support import Server, text

_SCOPE = 'otel_scope_name="lmcache_mp.lookup",otel_scope_schema_url="",otel_scope_version=""'


def server_metrics(n: int) -> str:
    """The MP server after `n` lookups."""
    counters = {
        "lookup_requested_tokens": 1024,
        "lookup_hit_tokens": 768,
        "lookup_hit_l1_tokens": 512,
        "lookup_hit_l2_tokens": 256,
        "lookups_requests": 1,
        "l1_read_chunks": 2,
        "num_chunks_loaded": 3,
        "l2_store_completed_objects_chunks": 4,
    }
    told = "".join(
        f"# TYPE lmcache_mp_{name}_total counter\nlmcache_mp_{name}_total{{{_SCOPE}}} {each * n}.0\n"
        for name, each in counters.items()
    )
    return (
        told
        + histogram("lmcache_mp_l1_chunk_lifetime_seconds", _SCOPE, n, 30.0)
        + histogram("lmcache_mp_l2_load_throughput_GB_per_second", _SCOPE, n, 2.5)
        + '# TYPE target_info gauge\ntarget_info{service_name="lmcache"} 1.0\n'
    )


def in_process_metrics(n: int) -> str:
    """What LMCache adds to its engine's /metrics after `n` requests, by one worker."""
    labels = 'model_name="m",role="worker",served_model_name="m",worker_id="0"'
    counters = {
        "num_lookup_tokens": 1024,
        "num_lookup_hits": 768,
        "num_requested_tokens": 768,
        "num_hit_tokens": 640,
        "num_stored_tokens": 256,
        "num_remote_read_bytes": 4096,
    }
    told = "".join(
        f"# TYPE lmcache:{name}_total counter\nlmcache:{name}_total{{{labels}}} {each * n}.0\n"
        for name, each in counters.items()
    )
    return (
        told
        + f"# TYPE lmcache:lookup_hit_rate gauge\nlmcache:lookup_hit_rate{{{labels}}} 0.75\n"
        + histogram("lmcache:time_to_retrieve", labels, n, 0.02)
        + histogram("lmcache:remote_time_to_get", labels, n, 7.0)
        + histogram("lmcache:request_cache_lifespan", labels, n, 3.0)
    )


def server() -> Server:
    """The MP server's metrics port: like any bare one it answers every path with its metrics."""
    answer = text(server_metrics(1))
    return Server(dict.fromkeys(("/metrics", "/", "/version", "/v1/models", "/health"), answer))


def api() -> Server:
    """The MP server's HTTP API where its metrics go over OTLP."""
    return Server(
        {"/": page({"status": "ok", "service": "LMCache HTTP API"}), "/version": page("0.5.6-abcdef")}
    )


def in_vllm(n: int = 1) -> Server:
    """The recorded vLLM with LMCache as its connector, its KV events switched off."""
    server = vllm.recorded()
    del server.answers["/kv_event_sources"]
    server.answers["/metrics"] = text(vllm.METRICS + in_process_metrics(n))
    return server
