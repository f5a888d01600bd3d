-- OpenTelemetry's GenAI conventions (semantic-conventions-genai) and the spellings that came before them. Their spans
-- are made by clients and gateways: times are as those saw them, and the split into layers is there only where the
-- instrumentation adds gen_ai.latency.* (the names vLLM and SGLang use).
--
-- Input tokens: the conventions want cached tokens included. Anthropic's API leaves them out, and some instrumentations
-- pass its number on. That is certain where the parts exceed the whole; otherwise it is assumed for Anthropic under the
-- spelling older than the rule, except from the package that is known to add them up.
WITH (names -> arrayFirst(text -> text != '', arrayMap(name -> a[name], names))) AS first
SELECT
    *,
    ttft_us - queue_us - prefill_us AS frontend_us,
    e2e_us - queue_us - prefill_us - decode_us - frontend_us AS other_us,
    tokens(if(parts > input OR exclusive, input + parts, input)) AS prompt_tokens
FROM
(
    SELECT
        time,
        server,
        span_id,
        model,
        request_id,
        finish_reason,
        micros(ttft) AS ttft_us,
        coalesce(micros(e2e), micros(duration / 1e9)) AS e2e_us,
        micros(queue) AS queue_us,
        micros(prefill) AS prefill_us,
        micros(decode) AS decode_us,
        ifNull(cached, 0) + ifNull(written, 0) AS parts,
        input,
        exclusive,
        tokens(cached) AS cached_tokens,
        tokens(output) AS completion_tokens
    FROM
    (
        SELECT
            time,
            server,
            span_id,
            duration,
            first(['gen_ai.response.model', 'gen_ai.request.model']) AS model,
            first(['gen_ai.response.id', 'gen_ai.request.id']) AS request_id,
            trim(BOTH '[]" ' FROM splitByChar(',', a['gen_ai.response.finish_reasons'])[1]) AS finish_reason,
            toFloat64OrNull(first(['gen_ai.latency.time_to_first_token', 'gen_ai.server.time_to_first_token',
                'gen_ai.response.time_to_first_chunk'])) AS ttft,
            toFloat64OrNull(a['gen_ai.latency.e2e']) AS e2e,
            toFloat64OrNull(a['gen_ai.latency.time_in_queue']) AS queue,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_prefill']) AS prefill,
            toFloat64OrNull(a['gen_ai.latency.time_in_model_decode']) AS decode,
            toFloat64OrNull(first(['gen_ai.usage.input_tokens', 'gen_ai.usage.prompt_tokens'])) AS input,
            toFloat64OrNull(first(['gen_ai.usage.output_tokens', 'gen_ai.usage.completion_tokens'])) AS output,
            toFloat64OrNull(first(['gen_ai.usage.cache_read.input_tokens', 'gen_ai.usage.cache_read_input_tokens',
                'gen_ai.usage.cached_tokens', 'gen_ai.usage.input_tokens.cached'])) AS cached,
            toFloat64OrNull(first(['gen_ai.usage.cache_creation.input_tokens',
                'gen_ai.usage.cache_creation_input_tokens'])) AS written,
            lower(first(['gen_ai.provider.name', 'gen_ai.system'])) = 'anthropic'
                AND NOT hasAny(mapKeys(a), ['gen_ai.usage.cache_read.input_tokens',
                    'gen_ai.usage.cache_creation.input_tokens'])
                AND scope != 'opentelemetry.instrumentation.anthropic' AS exclusive
        FROM spans
        WHERE a['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content')
            OR a['llm.request.type'] IN ('chat', 'completion')
    )
)
