"""What probes saw beside the spans: of one request, of a server's processes, of a host.

model      what is given
processes  which processes do a server's work
spans      the spans of one request's trace
counters   what its processes counted while it ran, and its share of that
request    all of it together: the front door of `hitmap trace`
hosts      processes and GPUs over time
text       the trace in a terminal
"""
