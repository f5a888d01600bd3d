"""Page faults, TLB flushes, waits, switches and memory of processes and threads.

sensor        a process or the host, by the best means there is: eBPF, perf events, /proc
thread        the calling thread, at the edges of what it does; no privilege, half a microsecond
processes     which process: by port, by parent, and whether a number still is the same one's
container     how it is known in its container
support       what works here, each tried; selftest: known work, and what was counted of it

Below: program.c is what runs in the kernel, compile loads it in a process of its own (distribution finds BCC),
requirements says beforehand what is missing, ebpf and bpf read its maps, counted makes totals of them; procfs and parse
do the same with /proc.
"""
