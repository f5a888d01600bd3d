"""What probes saw beside the spans: of one request, of a server's processes, of a host.

model      what is given
identity   is it the same process? names of processes in SQL
processes  which processes do a server's work
spans      the spans of one request's trace
points     points of counters in SQL: each moment told once
counters   what its processes counted while it ran, and its share of that
request    all of it together: the front door of `hitmap trace`
hosts      processes and GPUs over time: the front door of the page Hosts
watched    what it gives
figures    which figures these have, and of which points
binned     points by bin of time
serving    whose work a process does
worth      requests worth a look
text       the trace in a terminal
"""
