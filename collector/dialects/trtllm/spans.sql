-- TensorRT-LLM: one span `llm_request` for each finished request, made when it ends (read, not run live). All times are
-- read from one clock of the engine, so that prefill and decode follow exactly from the others; what the front end adds
-- is in none of them. A figure that is not known is -1 there, which is no time and becomes NULL. No cached tokens.
SELECT
    *,
    ttft_us - queue_us AS prefill_us,
    e2e_us - ttft_us AS decode_us,
    e2e_us - queue_us - prefill_us - decode_us AS other_us
FROM
(
    SELECT
        time,
        server,
        span_id,
        request_id,
        finish_reason,
        micros(ttft) AS ttft_us,
        micros(e2e) AS e2e_us,
        micros(queue) AS queue_us,
        tokens(prompt) AS prompt_tokens,
        tokens(completion) AS completion_tokens
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            a['gen_ai.request.id'] AS request_id,
            trim(BOTH '[]" ' FROM splitByChar(',', a['gen_ai.response.finish_reasons'])[1]) AS finish_reason,
            toFloat64OrNull(a['gen_ai.latency.time_to_first_token']) AS ttft,
            toFloat64OrNull(a['gen_ai.latency.e2e']) AS e2e,
            toFloat64OrNull(a['gen_ai.latency.time_in_queue']) AS queue,
            toFloat64OrNull(a['gen_ai.usage.prompt_tokens']) AS prompt,
            toFloat64OrNull(a['gen_ai.usage.completion_tokens']) AS completion
        FROM spans
    )
)
