"""Runs a command, and fails if a TCP socket outside of loopback existed meanwhile.

    python3 tests/rdma/tcp_watch.py COMMAND ARGUMENT…

In a cluster whose data travels over verbs, only the administration listens at 127.0.0.1; data uses the addresses of
RDMA devices. The program also notices a connection that was closed between two polls, because its socket stays in
TIME_WAIT for a minute. An attempt to connect does not count: `loam` first tries the usual administration port at the
host of the commit manager, and no data travels before that port accepts.
"""

import ipaddress
import pathlib
import subprocess
import sys

INTERVAL_S = 0.25
LISTENS, CONNECTS = "0A", "02"  # states of a socket


def address(text):
    """Parses an address of /proc/net/tcp such as "0100007F:1F90": 32-bit words in the byte order of a little-endian
    machine."""
    words = bytes.fromhex(text.partition(":")[0])
    parsed = ipaddress.ip_address(b"".join(words[i:i + 4][::-1] for i in range(0, len(words), 4)))
    return getattr(parsed, "ipv4_mapped", None) or parsed


def sockets():
    """Yields for each TCP socket whether it is on loopback, and its line in /proc/net."""
    for table in ("tcp", "tcp6"):
        for line in (pathlib.Path("/proc/net") / table).read_text().splitlines()[1:]:
            _, local, remote, state = line.split()[:4]
            if state == CONNECTS:
                continue
            ends = [local] if state == LISTENS else [local, remote]
            yield all(address(end).is_loopback for end in ends), f"{table}: {line.strip()}"


def main():
    seen, foreign = 0, {}
    with subprocess.Popen(sys.argv[1:]) as command:
        while True:
            try:
                code = command.wait(INTERVAL_S)
            except subprocess.TimeoutExpired:
                code = None
            found = list(sockets())
            seen = max(seen, len(found))
            foreign.update({tuple(line.split()[2:4]): line for local, line in found if not local})  # keyed by both ends
            if code is not None:
                break
    print(f"tcp: up to {seen} sockets, {len(foreign)} not of loopback")
    for line in foreign.values():
        print(f"tcp: data may have travelled over {line}")
    return code or (1 if foreign else 0)


if __name__ == "__main__":
    sys.exit(main())
