"""Tokens in, logits out: the decoder, its weights, its tokenizer, and the choice of the next token.

config      what a model looks like, from its config.json
batch       what one step computes: chunks of several sequences, packed
rope        rotary position embedding
attention   chunks against the paged KV cache
llama       the decoder
weights     safetensors, checked before anything is kept
demo/       seeded random weights and a tokenizer of our own, for those who have no model at hand
load        an EngineConfig's model, whole or refused
tokenizer   text to ids and back, piece by piece; chat templates
sampling    logits to tokens
"""
