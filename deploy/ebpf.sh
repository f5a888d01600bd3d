#!/bin/sh
# What eBPF by BCC needs on this host: the distribution's bpfcc, kernel headers of any version (only arguments of
# tracepoints are read, no structures of the kernel), and tracefs. Can be run again; without root it changes nothing.
# On a host of your own read it first: `hitmap doctor` says which of these steps is missing.
set -u

if [ "$(id -u)" != 0 ]; then
	echo "not root: tests and probes that need eBPF are skipped"
	exit 0
fi

if command -v apt-get >/dev/null && ! { [ -d /usr/lib/python3/dist-packages/bcc ] && ls /usr/src/linux-headers-*/include >/dev/null 2>&1; }; then
	apt-get update && apt-get install -y --no-install-recommends python3-bpfcc "linux-headers-$(dpkg --print-architecture)" ||
		echo "python3-bpfcc or kernel headers could not be installed: tests that need eBPF are skipped"
fi

# BCC looks for headers of the running kernel; Debian splits them into two folders.
modules=/lib/modules/$(uname -r)
configured=$(ls -d /usr/src/linux-headers-*/include/generated/autoconf.h 2>/dev/null | sort -V | tail -n1)
if [ ! -e "$modules/build" ] && [ -n "$configured" ]; then
	headers=${configured%/include/generated/autoconf.h}
	common=${headers%-*}-common
	[ -d "$common" ] || common=$headers
	mkdir -p "$modules"
	ln -sfn "$headers" "$modules/build"
	ln -sfn "$common" "$modules/source"
fi

[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing || true
