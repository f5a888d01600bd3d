"""The engine's front end: HTTP in the OpenAI API's words and gRPC, both over one `frontend`, which knows neither.

frontend     prompts in, text out: what every door does between a caller and the core
text         tokens to text, with an end at stop strings
protocol     what the HTTP API takes, checked
answers      what it answers
http         its paths; admin: faults, restart
connection   an HTTP connection whose every wait has an end
rpc          the same over gRPC (engine.proto)
"""
