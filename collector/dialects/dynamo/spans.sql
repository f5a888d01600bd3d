-- Dynamo: its front end's span `http-request`, one for each call of an inference endpoint; calls of others (health,
-- models) have the same name. The spans below it (kv_router.route_request, handle_payload) are parts of the request.
-- The layers are the engine's to tell: where its span is there too (under the same request id), that one stands.
SELECT
    time,
    server,
    span_id,
    if(a['request_id'] != '', a['request_id'], a['x_dynamo_request_id']) AS request_id,
    a['model'] AS model,
    micros(toFloat64OrNull(a['ttft_ms']) / 1e3) AS ttft_us,
    micros(duration / 1e9) AS e2e_us,
    tokens(toFloat64OrNull(a['input_tokens'])) AS prompt_tokens,
    tokens(toFloat64OrNull(a['output_tokens'])) AS completion_tokens
FROM spans
WHERE match(a['uri'], '/v1/(chat/completions|completions|responses|messages)')
