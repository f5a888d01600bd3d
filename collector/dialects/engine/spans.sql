-- hitmap's engine: a trace for each request that ended, however it did. The root `llm_request` is the request; the spans
-- below it are the parts of its time and no requests. A layer that the request did not pass took no time: 0 is what the
-- server tells. All times come from one clock and follow each other without a gap; `other` is what is left of the whole,
-- so that the layers add up to the microsecond; those before the first token add up to the time to it, `frontend` taking
-- what rounding six of them leaves (a request preempted later has more time in them than that). Tokens by tier add up with the computed ones to the prompt, unless the
-- request ended before all of it was computed.
SELECT
    * REPLACE if(abs(until_first - frontend_us) <= 3, until_first, frontend_us) AS frontend_us,
    e2e_us - frontend_us - queue_us - prefix_us - host_us - remote_us - prefill_us - decode_us AS other_us
FROM
(
    SELECT
        ttft_us - queue_us - prefix_us - host_us - remote_us - prefill_us AS until_first,
        time,
        server,
        span_id,
        request_id,
        model,
        finish_reason,
        labels,
        observed,
        micros(ttft) AS ttft_us,
        micros(duration / 1e9) AS e2e_us,
        micros(frontend) AS frontend_us,
        micros(queue) AS queue_us,
        micros(prefix) AS prefix_us,
        micros(host) AS host_us,
        micros(remote) AS remote_us,
        micros(prefill) AS prefill_us,
        micros(decode) AS decode_us,
        tokens(prompt) AS prompt_tokens,
        tokens(cached) AS cached_tokens,
        tokens(on_device) AS device_tokens,
        tokens(on_host) AS host_tokens,
        tokens(on_remote) AS remote_tokens,
        tokens(completion) AS completion_tokens,
        tokens(again) AS recomputed_tokens,
        tokens(preempted) AS preemptions
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            duration,
            a['gen_ai.request.id'] AS request_id,
            a['gen_ai.response.model'] AS model,
            trim(BOTH '[]" ' FROM a['gen_ai.response.finish_reasons']) AS finish_reason,
            mapFilter((name, mark) -> mark != '', map('fault', a['hitmap.fault'])) AS labels,
            counted(a) AS observed,
            toFloat64OrNull(a['gen_ai.latency.time_to_first_token']) AS ttft,
            toFloat64OrNull(a['hitmap.latency.frontend']) AS frontend,
            toFloat64OrNull(a['gen_ai.latency.time_in_queue']) AS queue,
            toFloat64OrNull(a['hitmap.latency.prefix']) AS prefix,
            toFloat64OrNull(a['hitmap.latency.host']) AS host,
            toFloat64OrNull(a['hitmap.latency.remote']) AS remote,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_prefill']) AS prefill,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_decode']) AS decode,
            toFloat64OrNull(a['gen_ai.usage.input_tokens']) AS prompt,
            toFloat64OrNull(a['gen_ai.usage.cache_read.input_tokens']) AS cached,
            toFloat64OrNull(a['hitmap.tokens.device']) AS on_device,
            toFloat64OrNull(a['hitmap.tokens.host']) AS on_host,
            toFloat64OrNull(a['hitmap.tokens.remote']) AS on_remote,
            toFloat64OrNull(a['gen_ai.usage.output_tokens']) AS completion,
            toFloat64OrNull(a['hitmap.tokens.recomputed']) AS again,
            toFloat64OrNull(a['hitmap.preemptions']) AS preempted
        FROM spans
        WHERE a['gen_ai.request.id'] != ''
    )
)
