"""Caches, TLB, cycles and instructions, by the CPU's own counters.

sensor    of other processes, by thread or as one
group     of the calling thread, for probes.kernel.thread
events    which counters, in pairs that count at the same times
support   which of them work here, each tried
"""
