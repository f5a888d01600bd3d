-- SGLang: a root span for each request, " Req 1a2b3c4d" (with the role before it where prefill and decode are apart),
-- started when the request arrived. The spans of threads and stages below it are no requests.
-- time_in_model_prefill runs from the dispatch to the first token: queueing is in it. It fills `prefill`, and `queue`
-- stays unknown; what comes before the dispatch (tokenising) is `frontend`. A request that was given up has no figures,
-- only the span's own length.
SELECT
    *,
    ttft_us - prefill_us AS frontend_us,
    e2e_us - prefill_us - decode_us - frontend_us AS other_us
FROM
(
    SELECT
        time,
        server,
        span_id,
        request_id,
        model,
        finish_reason,
        micros(ttft) AS ttft_us,
        coalesce(micros(e2e), micros(duration / 1e9)) AS e2e_us,
        micros(prefill) AS prefill_us,
        micros(decode) AS decode_us,
        tokens(prompt) AS prompt_tokens,
        tokens(cached) AS cached_tokens,
        tokens(completion) AS completion_tokens
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            duration,
            if(a['gen_ai.request.id'] != '', a['gen_ai.request.id'], a['rid']) AS request_id,
            a['gen_ai.response.model'] AS model,
            trim(BOTH '[]" ' FROM splitByChar(',', a['gen_ai.response.finish_reasons'])[1]) AS finish_reason,
            toFloat64OrNull(a['gen_ai.latency.time_to_first_token']) AS ttft,
            toFloat64OrNull(a['gen_ai.latency.e2e']) AS e2e,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_prefill']) AS prefill,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_decode']) AS decode,
            toFloat64OrNull(a['gen_ai.usage.prompt_tokens']) AS prompt,
            toFloat64OrNull(a['gen_ai.usage.cached_tokens']) AS cached,
            toFloat64OrNull(a['gen_ai.usage.completion_tokens']) AS completion
        FROM spans
        WHERE a['rid'] != '' OR a['gen_ai.request.id'] != ''
    )
)
