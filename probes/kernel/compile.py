"""Compiles, loads and attaches program.c, hands its descriptors over and ends. Run as a process of its own:

    python -m probes.kernel.compile SOCKET OPTIONS      (a descriptor, JSON)

LLVM takes 100 MB and can abort; neither shall befall the process that reads. Programs stay attached as long as somebody
holds the descriptors. Answers with one JSON message: {"maps": [names], "attached": [tracepoints], "refused":
{tracepoint: why}} and the descriptors in that order, or {"error": why}.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from cachemodel.errors import UserError
from probes.kernel import distribution

SOURCE = Path(__file__).with_name("program.c")
RAW = {"page_fault_user": b"fault_user", "page_fault_kernel": b"fault_kernel", "tlb_flush": b"flush"}
OFF_CPU = {"sched_switch": b"off_cpu"}


def main(handle: int, options: dict[str, Any]) -> None:
    """Answers on the socket of that descriptor."""
    answer: dict[str, Any]
    with socket.socket(fileno=handle) as line:
        try:
            answer, descriptors = attach(options)
        except Exception as error:  # BCC raises bare ones
            answer, descriptors = {"error": str(error) or type(error).__name__}, []
        socket.send_fds(line, [json.dumps(answer).encode()], descriptors)


def attach(options: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """options: flags (of the C compiler), maps (names), packages (folders), off_cpu (whether that program is there)."""
    bcc = distribution.load([Path(one) for one in options["packages"]])
    program = bcc.BPF(text=SOURCE.read_bytes(), cflags=options["flags"])
    attached, descriptors, refused = [], [program[name.encode()].map_fd for name in options["maps"]], {}
    for tracepoint, function in (RAW | OFF_CPU if options["off_cpu"] else RAW).items():
        try:
            program.attach_raw_tracepoint(tracepoint.encode(), function)
        except Exception as error:
            refused[tracepoint] = str(error)
            continue
        attached.append(tracepoint)
        descriptors.append(program.raw_tracepoint_fds[tracepoint.encode()])
    for tracepoint, descriptor in program.tracepoint_fds.items():  # BCC attached those by their names
        attached.append(tracepoint.decode())
        descriptors.append(descriptor)
    if not set(attached) & set(RAW):
        raise UserError(f"no tracepoint could be attached: {'; '.join(refused.values())}")
    return {"maps": options["maps"], "attached": attached, "refused": refused}, descriptors


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
