"""What `hitmap probe` runs: sensors beside a server, read some times a second and told to any OTLP collector.

targets  which processes are watched, as they come and go
deltas   totals to what was counted since the point before
otlp     points to protobuf, and to the collector
loop     the daemon
"""
