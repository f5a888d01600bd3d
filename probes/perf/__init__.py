"""perf_event_open(2), for hardware counters (probes.pmu) and for software events of the kernel (probes.kernel).

events    which event, opened how, and what a refusal means
scaling   what a counter that did not count all the time would have counted
counters  events of all threads of a process, totals that never go back
"""
