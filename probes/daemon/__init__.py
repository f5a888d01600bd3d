"""What `hitmap probe` runs: sensors beside a server, read some times a second and told to any OTLP collector.

targets   which processes are watched, as they come and go
sensors   what is read of them
deltas    totals to what was counted since the point before
loop      the daemon
otlp      points to protobuf
endpoint  where the collector is
channel   to it, over gRPC or HTTP
sender    what waits for it
lines     points as JSON instead
"""
