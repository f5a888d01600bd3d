-- What clients and gateways tell of a call to a model: OpenTelemetry's GenAI conventions, OpenLLMetry's older spellings,
-- OpenInference. The names, and what an input count includes, are in words.py. Times are as whoever made the span saw
-- them; the split into layers is there only where the instrumentation adds gen_ai.latency.* (the names vLLM and SGLang
-- use). A span is a request if it says that it called a model: agents and tools count the same tokens once more. A span
-- around one that the SDK made of the same call gives way to it: it may lack the response id by which rows are told to be
-- one. Both are in one export: the inner ends just before the outer.
WITH (names -> arrayFirst(text -> text != '', arrayMap(name -> a[name], names))) AS first
SELECT
    *,
    ttft_us - queue_us - prefill_us AS frontend_us,
    e2e_us - queue_us - prefill_us - decode_us - frontend_us AS other_us,
    tokens({prompt}) AS prompt_tokens
FROM
(
    SELECT
        time,
        server,
        span_id,
        model,
        request_id,
        finish_reason,
        observed,
        micros(ttft) AS ttft_us,
        coalesce(micros(e2e), micros(duration / 1e9)) AS e2e_us,
        micros(queue) AS queue_us,
        micros(prefill) AS prefill_us,
        micros(decode) AS decode_us,
        ifNull(cached, 0) + ifNull(written, 0) AS parts,
        input,
        output,
        total,
        cached,
        written,
        reasoning,
        exclusive,
        openinference,
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
            {model} AS model,
            {request_id} AS request_id,
            trim(BOTH '[]" ' FROM splitByChar(',', {finish})[1]) AS finish_reason,
            {ttft} AS ttft,
            {e2e} AS e2e,
            {queue} AS queue,
            {prefill} AS prefill,
            {decode} AS decode,
            {input} AS input,
            {output} AS output,
            {total} AS total,
            {cached} AS cached,
            {written} AS written,
            {reasoning} AS reasoning,
            {exclusive} AS exclusive,
            counted(a) AS observed,
            a['openinference.span.kind'] != '' AS openinference
        FROM spans
        WHERE
            (
                a['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content')
                OR a['llm.request.type'] IN ('chat', 'completion')
                OR a['openinference.span.kind'] = 'LLM'
            )
            AND span_id NOT IN (SELECT parent FROM spans WHERE scope IN {traced_sdks})
    )
)
