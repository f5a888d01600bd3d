"""Under which names instrumentations send prompt and response text, and which names beside them are plain.

Facts from public documentation: OpenTelemetry's GenAI conventions (1.27 to 1.41, and their own repository since),
OpenInference's semantic conventions, OpenLLMetry's semconv_ai package, and what Vercel's AI SDK, Langfuse, Sentry,
MLflow, LiveKit and Google's ADK say of their telemetry. Vectors of embeddings count as text, for text can be won
back from them; so do definitions of tools.
"""

from __future__ import annotations

import re

# Keys that begin so hold text, wherever they stand. What follows a dot in them is told by four characters at least.
TEXT_KEYS = (
    # OpenTelemetry
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.prompt",  # .0.content and so on; whole until 1.36
    "gen_ai.completion",
    "gen_ai.content",
    "gen_ai.event.content",
    "gen_ai.choice",  # names of events, used as keys
    "gen_ai.system.message",
    "gen_ai.user.message",
    "gen_ai.assistant.message",
    "gen_ai.tool.message",
    "gen_ai.tool.definitions",
    "gen_ai.tool.description",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query",
    "gen_ai.memory.query",
    "gen_ai.memory.records",
    "gen_ai.evaluation.explanation",
    # Sentry
    "gen_ai.request.messages",
    "gen_ai.request.available_tools",
    "gen_ai.response.text",
    "gen_ai.response.object",
    "gen_ai.response.tool_calls",
    "gen_ai.tool.input",
    "gen_ai.tool.output",
    "gen_ai.embeddings.input",
    # OpenInference
    "llm.prompts",
    "llm.completions",
    "llm.choices",
    "llm.input_messages",
    "llm.output_messages",
    "llm.prompt_template",
    "llm.function_call",
    "llm.tools",
    "input.value",
    "input.audio",
    "input.images",
    "input.documents",
    "output.value",
    "output.audio",
    "output.images",
    "output.documents",
    "message.content",  # and message.contents
    "message.tool_calls",
    "message.function_call_arguments",
    "message_content.text",
    "message_content.data",
    "message_content.image",
    "message_content.audio",
    "message_content.video",
    "message_content.encrypted_content",
    "tool_call.function.arguments",
    "tool.parameters",
    "tool.description",
    "tool.json_schema",
    "prompt.text",
    "completion.text",
    "audio.transcript",
    "document.content",
    "document.metadata",
    "retrieval.documents",
    "reranker.query",
    "reranker.input_documents",
    "reranker.output_documents",
    "embedding.text",
    "embedding.vector",
    "embedding.embeddings",
    # OpenLLMetry
    "traceloop.entity.input",
    "traceloop.entity.output",
    "traceloop.prompt.template",  # and template_variables
    "llm.request.functions",
    "llm.content.completion",
    "mcp.request.argument",
    "mcp.response.value",
    "db.query.result.document",
    # Vercel's AI SDK
    "ai.prompt",
    "ai.value",  # and ai.values
    "ai.embedding",
    "ai.schema",
    "ai.result.text",
    "ai.result.object",
    "ai.result.toolCalls",
    "ai.response.text",
    "ai.response.object",
    "ai.response.reasoning",
    "ai.response.toolCalls",
    "ai.response.files",
    "ai.toolCall.args",
    "ai.toolCall.result",
    # Langfuse
    "langfuse.observation.input",
    "langfuse.observation.output",
    "langfuse.trace.input",
    "langfuse.trace.output",
    # MLflow
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
    # Google's ADK
    "gcp.vertex.agent.llm_request",
    "gcp.vertex.agent.llm_response",
    "gcp.vertex.agent.tool_call_args",
    "gcp.vertex.agent.tool_response",
    # LiveKit
    "lk.instructions",
    "lk.chat_ctx",
    "lk.user_input",
    "lk.user_transcript",
    "lk.input_text",
    "lk.tts.input_text",
    "lk.response.text",
    "lk.response.function_calls",
    "lk.function_tools",
    "lk.function_tool.arguments",
    "lk.function_tool.output",
)

_DOCUMENTS = r"(retrieval\.|reranker\.input_|reranker\.output_)documents"
# ... but these whole keys do not.
PLAIN_KEYS = re.compile(
    "|".join(
        (
            r"gen_ai\.prompt\.(name|version)",
            r"gen_ai\.(prompt|completion)_tokens",
            r"(gen_ai\.prompt|gen_ai\.completion|llm\.prompts|llm\.completions)\.\d+\.(role|finish_reason)",
            r"gen_ai\.(prompt|completion)\.\d+\.tool_calls\.\d+\.(id|name|type)",
            r"llm\.(input|output)_messages\.\d+\.message\.(role|tool_call_id|function_call_name)",
            r"llm\.(input|output)_messages\.\d+\.message\.tool_calls\.\d+\.tool_call\.(id|function\.name)",
            r"llm\.prompt_template\.(name|version)",
            r"llm\.tools\.\d+\.tool\.name",
            r"llm\.request\.functions\.\d+\.name",
            _DOCUMENTS + r"\.\d+\.document\.(id|score)",
            r"(input|output)\.audio\.mime_type",
            r"message\.content_(type|length)",
            r"ai\.prompt\.format",
            r"ai\.schema\.name",
        )
    )
)

GEN_AI = (
    "gen_ai."  # an event of this namespace carries text, in its body or attributes, under names of any kind
)
# All that may stay of such an event: bare fields, and attributes.
PLAIN_IN_EVENTS = re.compile(
    "|".join(
        (
            r"index|finish_reason|role|id|type",
            r"gen_ai\.(system|provider\.name|operation\.name|conversation\.id|data_source\.id|output\.type)",
            r"gen_ai\.(prompt\.name|tool\.name|tool\.type|tool\.call\.id)",
            r"gen_ai\.(agent|workflow)\.(id|name|version)",
            r"gen_ai\.request\.(id|model|n|seed|stream|choice\.count|max_tokens|encoding_formats)",
            r"gen_ai\.request\.(temperature|top_p|top_k|frequency_penalty|presence_penalty)",
            r"gen_ai\.response\.(id|model|finish_reasons|time_to_first_chunk)",
            r"gen_ai\.(usage|latency|token)\.[a-z_.]+",
            r"gen_ai\.evaluation\.(name|score\.value|score\.label)",
            r"(gen_ai\.)?openai\.(request|response|api)\.(seed|type|service_tier|system_fingerprint)",
            r"event\.name|error\.type|exception\.type|server\.address|server\.port|session\.id",
        )
    )
)
