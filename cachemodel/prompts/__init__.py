"""Prompts as their senders wrote them, from logs of many forms. Pure; hitmap/prompt_files reads the files.

model        what a prompt and its parts are
read         a line of a log as its prompts
chat         requests made of messages, in the order in which they are rendered; blocks: the contents of messages
plain        texts, token ids, and conversations in ShareGPT's form
telemetry    spans and log records of OpenTelemetry's GenAI conventions; otlp: their JSON; events: messages one by one
record       whose a request is, and when it was sent; answer: its response; usage: its counts of tokens
decode       JSON lines in which what many have is kept once
"""
