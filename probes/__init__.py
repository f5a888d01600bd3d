"""Sensors in or beside a server.

grpc     interceptors that write into a ring, for a gRPC server or client
kernel   page faults, TLB flushes and waits, counted in the kernel where that may be watched
perf     perf_event_open, which kernel and pmu share
pmu      caches and TLB of the CPU, by its own counters
gpu      memory, caches, links and pipes of NVIDIA GPUs
reading  what every sensor gives
support  what this host supports

A sensor imports nothing of the others; what puts them together stands in `daemon`.
"""
