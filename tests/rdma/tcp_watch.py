"""Runs a command, and fails if a TCP socket was there meanwhile that was none of loopback.

    python3 tests/rdma/tcp_watch.py COMMAND ARGUMENT…

For clusters whose data travels over verbs: their data addresses are those of devices, and administration alone listens
at 127.0.0.1. A connection that was closed between two looks is seen too: it stays for a minute in TIME_WAIT.
"""

import ipaddress
import pathlib
import subprocess
import sys

INTERVAL_S = 0.25
LISTENS = "0A"


def address(text):
    """Of "0100007F:1F90": words of 32 bits as a little-endian machine reads them."""
    words = bytes.fromhex(text.partition(":")[0])
    parsed = ipaddress.ip_address(b"".join(words[i:i + 4][::-1] for i in range(0, len(words), 4)))
    return getattr(parsed, "ipv4_mapped", None) or parsed


def sockets():
    """(whether it is one of loopback, its line) of each TCP socket."""
    for table in ("tcp", "tcp6"):
        for line in (pathlib.Path("/proc/net") / table).read_text().splitlines()[1:]:
            _, local, remote, state = line.split()[:4]
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
            foreign.update({tuple(line.split()[2:4]): line for local, line in found if not local})  # by its two ends
            if code is not None:
                break
    print(f"tcp: up to {seen} sockets, {len(foreign)} not of loopback")
    for line in foreign.values():
        print(f"tcp: data may have travelled over {line}")
    return code or (1 if foreign else 0)


if __name__ == "__main__":
    sys.exit(main())
