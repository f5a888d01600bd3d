-- Langfuse's SDK (langfuse 3 and later; attribute names as in langfuse/_client/attributes.py). The usage is JSON in one
-- attribute: OpenAI's as it came, of either API, cached tokens included; or Anthropic's as it came; or usage types that are
-- to be disjoint and add up to the total. Integrations that put a prompt with its cached part into `input` all the same are found out by a total that
-- has no room for the part (issues 10592, 12306; codex-observability-plugin issue 22). The SDK knows no response id.
SELECT
    *,
    tokens(multiIf(
        openai IS NOT NULL, openai,
        total = input + output, input,
        input + ifNull(cached, 0) + ifNull(written, 0))) AS prompt_tokens
FROM
(
    SELECT
        time,
        server,
        span_id,
        '' AS request_id,
        a['langfuse.observation.model.name'] AS model,
        if(first_at >= time, dateDiff('microsecond', time, first_at), NULL) AS ttft_us,
        micros(duration / 1e9) AS e2e_us,
        coalesce(JSONExtract(usage, 'prompt_tokens', 'Nullable(Float64)'),
            if(JSONHas(usage, 'input_tokens_details'), JSONExtract(usage, 'input_tokens', 'Nullable(Float64)'), NULL)
        ) AS openai,
        coalesce(JSONExtract(usage, 'input', 'Nullable(Float64)'),
            JSONExtract(usage, 'input_tokens', 'Nullable(Float64)')) AS input,
        coalesce(JSONExtract(usage, 'output', 'Nullable(Float64)'),
            JSONExtract(usage, 'output_tokens', 'Nullable(Float64)'),
            JSONExtract(usage, 'completion_tokens', 'Nullable(Float64)')) AS output,
        JSONExtract(usage, 'total', 'Nullable(Float64)') AS total,
        coalesce(JSONExtract(usage, 'prompt_tokens_details', 'cached_tokens', 'Nullable(Float64)'),
            JSONExtract(usage, 'input_tokens_details', 'cached_tokens', 'Nullable(Float64)'),
            JSONExtract(usage, 'input_cached_tokens', 'Nullable(Float64)'),
            JSONExtract(usage, 'input_cache_read', 'Nullable(Float64)'),
            JSONExtract(usage, 'cache_read_input_tokens', 'Nullable(Float64)')) AS cached,
        coalesce(JSONExtract(usage, 'input_cache_creation', 'Nullable(Float64)'),
            JSONExtract(usage, 'cache_creation_input_tokens', 'Nullable(Float64)')) AS written,
        tokens(cached) AS cached_tokens,
        tokens(written) AS created_tokens,
        tokens(output) AS completion_tokens
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            duration,
            a,
            a['langfuse.observation.usage_details'] AS usage,
            parseDateTime64BestEffortOrNull(
                trim(BOTH '"' FROM a['langfuse.observation.completion_start_time']), 6, 'UTC') AS first_at
        FROM spans
        WHERE a['langfuse.observation.type'] = 'generation'
    )
)
