/* Counts page faults and TLB flushes by thread, in the kernel. Compiled by BCC; -DALL, -DFUTEX, -DOFF_CPU choose.
 *
 * Nothing here reads a kernel struct: raw tracepoint arguments, helpers and the fields that a tracepoint's format file
 * gives are all there is, so that headers of another kernel than the running one do no harm.
 *
 * A thread runs on one CPU at a time, and no tracepoint below interrupts itself, so each counter has one writer and
 * needs neither an atomic addition nor a copy per CPU: reading 10,000 threads costs the same on two CPUs and on 200.
 */

struct counts {
    u64 faults[6];  /* user read, write, ifetch; kernel read, write, ifetch */
    u64 flushes[6]; /* by enum tlb_flush_reason */
    u64 futex_waits;
    u64 futex_ns;
    u64 off_cpu_ns;
    u64 cgroup;      /* where the thread was at its first event */
    u64 futex_since; /* 0: waits for none */
    u64 left;        /* when it last left a CPU; 0: not seen yet */
};

BPF_TABLE("hash", u64, struct counts, threads, THREADS); /* by tgid << 32 | tid, as helpers give it */
BPF_TABLE("hash", u32, u8, watched, WATCHED);            /* tgids that count; unused with -DALL */
BPF_TABLE("percpu_array", u32, u64, lost, 1);            /* events of threads for which `threads` had no room */

static __always_inline struct counts *counts_of(u64 thread) {
    struct counts *found = threads.lookup(&thread);
    if (found)
        return found;
    u32 tgid = thread >> 32, zero = 0;
    if (!tgid) /* idle CPUs share one id, and are nobody's */
        return 0;
#ifndef ALL
    if (!watched.lookup(&tgid))
        return 0;
#endif
    struct counts fresh = {};
    fresh.cgroup = bpf_get_current_cgroup_id();
    threads.insert(&thread, &fresh);
    found = threads.lookup(&thread);
    if (!found) {
        u64 *count = lost.lookup(&zero);
        if (count)
            *count += 1;
    }
    return found;
}

/* x86: bit 1 of the error code is a write, bit 4 an instruction fetch */
static __always_inline int count_fault(u32 mode, u64 error) {
    struct counts *counts = counts_of(bpf_get_current_pid_tgid());
    if (!counts)
        return 0;
    if (error & 16)
        counts->faults[mode + 2]++;
    else if (error & 2)
        counts->faults[mode + 1]++;
    else
        counts->faults[mode]++;
    return 0;
}

int fault_user(struct bpf_raw_tracepoint_args *ctx) {
    return count_fault(0, ctx->args[2]);
}

int fault_kernel(struct bpf_raw_tracepoint_args *ctx) {
    return count_fault(3, ctx->args[2]);
}

int flush(struct bpf_raw_tracepoint_args *ctx) {
    u64 reason = ctx->args[0];
    if (reason >= 6)
        return 0;
    struct counts *counts = counts_of(bpf_get_current_pid_tgid());
    if (counts)
        counts->flushes[reason]++;
    return 0;
}

#ifdef FUTEX
TRACEPOINT_PROBE(syscalls, sys_enter_futex) {
    u32 op = args->op & 127;
    if (op != 0 && op != 6 && op != 9 && op != 11 && op != 13) /* WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2 */
        return 0;
    struct counts *counts = counts_of(bpf_get_current_pid_tgid());
    if (counts)
        counts->futex_since = bpf_ktime_get_ns();
    return 0;
}

TRACEPOINT_PROBE(syscalls, sys_exit_futex) {
    u64 thread = bpf_get_current_pid_tgid();
    struct counts *counts = threads.lookup(&thread);
    if (!counts || !counts->futex_since)
        return 0;
    counts->futex_ns += bpf_ktime_get_ns() - counts->futex_since;
    counts->futex_since = 0;
    counts->futex_waits++;
    return 0;
}
#endif

#ifdef OFF_CPU
BPF_TABLE("percpu_array", u32, u64, switched, 1); /* when this CPU last changed threads */

/* The thread that leaves now came when this CPU last switched. That needs nothing of the next one, whose id lies in a
 * struct; and a raw tracepoint is not skipped where a classic one is, while somebody's bpf(2) holds this CPU. */
int off_cpu(struct bpf_raw_tracepoint_args *ctx) {
    u64 now = bpf_ktime_get_ns();
    u32 zero = 0;
    u64 *last = switched.lookup(&zero);
    if (!last)
        return 0;
    u64 came = *last;
    *last = now;
    struct counts *counts = counts_of(bpf_get_current_pid_tgid());
    if (!counts)
        return 0;
    if (counts->left && came > counts->left)
        counts->off_cpu_ns += came - counts->left;
    counts->left = now;
    return 0;
}
#endif
