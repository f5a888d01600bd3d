"""Prompts of a request log as chains of keyed hashes, and what of their text may be kept.

settings, key       what a person sets, and the secret of the installation
prompt, text, refused
                    a line of the log as a prompt, and whether it was computed at all; pure
prompt_log, waiting the prompts of a growing log, brought into the order in which they were sent
tokens              what a tokenizer is: server (asked over HTTP), local (tokenizer.json), approximate
memory, pieces, template, row
                    what a chain says beside its blocks, and its row
capture, redact     the rows of texts, by level of capture
source, open        the thread that does it, put together for one server
"""
