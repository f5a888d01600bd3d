-- vLLM: one span `llm_request` for each finished request; made when it ends, started when it arrived (wall clock).
-- Queue, prefill and decode are read from the engine's monotonic clock, TTFT and e2e from the front end's wall clock:
-- `frontend` and `other` may come out slightly negative and stay so. Neither cached tokens nor the model are on the span.
SELECT
    *,
    ttft_us - queue_us - prefill_us AS frontend_us,
    e2e_us - queue_us - prefill_us - decode_us - frontend_us AS other_us
FROM
(
    SELECT
        time,
        server,
        span_id,
        request_id,
        micros(ttft) AS ttft_us,
        micros(e2e) AS e2e_us,
        micros(queue) AS queue_us,
        micros(prefill) AS prefill_us,
        micros(decode) AS decode_us,
        tokens(prompt) AS prompt_tokens,
        tokens(completion) AS completion_tokens
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            a['gen_ai.request.id'] AS request_id,
            toFloat64OrNull(a['gen_ai.latency.time_to_first_token']) AS ttft,
            toFloat64OrNull(a['gen_ai.latency.e2e']) AS e2e,
            toFloat64OrNull(a['gen_ai.latency.time_in_queue']) AS queue,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_prefill']) AS prefill,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_decode']) AS decode,
            toFloat64OrNull(a['gen_ai.usage.prompt_tokens']) AS prompt,
            toFloat64OrNull(a['gen_ai.usage.completion_tokens']) AS completion
        FROM spans
    )
)
