#!/usr/bin/env python3
"""Runs a command of this machine in a guest that has RDMA verbs: Debian's kernel with Soft-RoCE under QEMU's emulation.

    tests/rdma/guest.py run -- build/dev/common/net/net_test --gtest_filter='*Rdma*'
    tests/rdma/guest.py run --results build/rdma --timeout 300 -- bash -c 'ibv_devinfo && rping -s -C 1'
    tests/rdma/guest.py prepare        only fetches the kernel

The guest reads this machine's files, and keeps files that the command writes in its own memory. These are lost at the
end, except in the folder given with --results. The command runs as root with two RDMA devices: rxe0, addresses
10.77.0.1, 10.77.0.2 and fd77:0::1, and rxe1, 10.77.1.1 and fd77:1::1. The output of the command is passed on at once.
The exit code is the command's; 124 after the time limit; 125 if the guest died or did not reach the command; 77 if this
machine cannot run a guest. The program needs neither privileges nor KVM.
"""

import argparse
import contextlib
import ctypes
import dataclasses
import gzip
import io
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import kernel as guest_kernel  # noqa: E402
from kernel import Unavailable  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TIMED_OUT, DIED, SKIPPED = 124, 125, 77
# Time from the start of QEMU to the start of the command: 6 s on an idle machine, more on a busy one.
BOOT_TIMEOUT_S = 120
# Number of console lines that an error report shows: enough for a kernel warning with its stack and the lines before
# it.
COMPLAINT_LINES = 80
QEMU = "qemu-system-x86_64"
# The devices of a guest without a wire. The second address of rxe0 is for tests that need a peer with another address.
NETWORK = """set -e
ip link set lo up
for number in 0 1; do
  ip link add rdma$number type dummy
  ip link set rdma$number mtu 4200 up
  ip addr add 10.77.$number.1/24 dev rdma$number
  ip addr add fd77:$number::1/64 dev rdma$number nodad
  rdma link add rxe$number type rxe netdev rdma$number
done
ip addr add 10.77.0.2/24 dev rdma0
"""


# Soft-RoCE runs in the threads ksoftirqd. At their usual priority these wait for programs that poll. With the higher
# priority, a round trip took less than 2 ms instead of 7 ms in two of three pairs of runs in one boot.
PRIORITY = """for thread in $(pgrep ksoftirqd); do chrt -f -p 10 $thread; done
"""
# The device of a guest whose wire leads to another guest.
WIRED_NETWORK = """set -e
ip link set lo up
wire=$(ls -d /sys/class/net/e* | head -n 1)
wire=${{wire##*/}}
ip link set $wire up
ip addr add {address}/24 dev $wire
rdma link add rxe0 type rxe netdev $wire
"""


@dataclasses.dataclass(frozen=True)
class Wire:
    """One end of a cable between two guests. Start the guest with number 1 first: it listens at `path`."""

    path: str
    number: int

    @property
    def address(self):
        return f"10.77.1.{self.number}"

    def options(self):
        listens = "on" if self.number == 1 else "off"
        return ["-netdev", f"stream,id=wire,server={listens},addr.type=unix,addr.path={self.path}",
                "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:77:01:{self.number:02}"]


def archive(files):
    """Returns an initramfs (cpio, newc) with the files {name: (mode, bytes)}."""
    parts = []
    entries = [*files.items(), ("TRAILER!!!", (0, b""))]
    for number, (name, (mode, data)) in enumerate(entries, 1):
        path = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        entry = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        parts += [entry, bytes(-len(entry) % 4), data, bytes(-len(data) % 4)]
    return b"".join(parts)


def _program(name):
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"there is no {name} on this machine; run scripts/setup")
    return found


def require():
    """Returns the kernel for a guest. Raises Unavailable if this machine cannot run a guest."""
    for name in (QEMU, "busybox", "rdma"):
        _program(name)
    return guest_kernel.prepare()


class Guest:
    """One boot of a guest, as a context manager. The guest ends with the `with` block, and with this process."""

    def __init__(self, command, timeout_s=120, results=None, memory_mib=2048, environment=None, network=NETWORK,
                 wire=None):
        self.command = list(command)
        self.timeout_s = timeout_s
        self.results = pathlib.Path(results).resolve() if results else None
        self.memory_mib = memory_mib
        self.environment = environment or {}
        self.wire = wire
        self.network = WIRED_NETWORK.format(address=wire.address) if wire else network
        self._stack = contextlib.ExitStack()
        self._qemu = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_):
        self._stack.close()

    def _job(self):
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.environment.items())
        job = {
            "network": self.network + PRIORITY,
            "command": f"{exports}ulimit -c 0\ncd {shlex.quote(os.getcwd())} && exec {shlex.join(self.command)}\n",
        }
        if self.results:
            job["results"] = str(self.results)
        return job

    def _initramfs(self, kernel):
        files = {"init": (0o100755, (HERE / "init.sh").read_bytes())}
        for folder in ("bin", "modules", "job", "dev"):
            files[folder] = (0o040755, b"")
        files["bin/busybox"] = (0o100755, pathlib.Path(_program("busybox")).read_bytes())
        for module in kernel.modules:
            files[f"modules/{module.name}"] = (0o100644, module.read_bytes())
        for name, text in self._job().items():
            files[f"job/{name}"] = (0o100644, text.encode())
        return gzip.compress(archive(files), compresslevel=1)

    def _start(self):
        kernel = require()
        self.folder = pathlib.Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="loam-guest-")))
        (self.folder / "initramfs").write_bytes(self._initramfs(kernel))
        for name in ("output", "status", "console"):
            (self.folder / name).touch()
        command = [
            _program(QEMU), "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(self.memory_mib),
            "-kernel", str(kernel.vmlinux), "-initrd", str(self.folder / "initramfs"),
            "-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable clocksource=tsc",
            "-chardev", f"file,id=console,path={self.folder}/console", "-serial", "chardev:console",
            "-device", "virtio-serial-pci",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
        ]
        for port in ("output", "status"):
            command += ["-chardev", f"file,id={port},path={self.folder}/{port}",
                        "-device", f"virtserialport,chardev={port},name={port}"]
        if self.results:
            self.results.mkdir(parents=True, exist_ok=True)
            command += ["-fsdev", f"local,id=results,path={self.results},security_model=none",
                        "-device", "virtio-9p-pci,fsdev=results,mount_tag=results"]
        command += ["-qmp", f"unix:{self.folder}/monitor,server=on,wait=off"]
        if self.wire:
            command += self.wire.options()
        self._boot_deadline = time.monotonic() + BOOT_TIMEOUT_S
        # QEMU's output goes to files, because a pipe of our caller would stay open as long as QEMU lives.
        errors = self._stack.enter_context(open(self.folder / "qemu", "wb"))
        self._qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                      preexec_fn=_die_with_parent)
        self._stack.callback(self._end)

    def _end(self):
        if self._qemu.poll() is None:
            self._qemu.kill()
        self._qemu.wait()

    def wait(self, sink):
        """Writes the output to `sink` until the guest has ended. Returns the exit code."""
        deadline = None
        with open(self.folder / "output", "rb") as output:
            while True:
                ended = self._qemu.poll() is not None
                lines = self._status_lines()
                while chunk := output.read(1 << 16):
                    sink.write(chunk)
                sink.flush()
                if lines and lines[-1] != "running":
                    return self._verdict(lines[-1])
                if ended:
                    self._complain("the guest ended before its command did")
                    return DIED
                if lines and deadline is None:
                    deadline = time.monotonic() + self.timeout_s
                if deadline is not None and time.monotonic() > deadline:
                    self._complain(f"the command did not end within {self.timeout_s} s; the guest was ended")
                    return TIMED_OUT
                if deadline is None and time.monotonic() > self._boot_deadline:
                    self._complain(f"the guest did not boot within {BOOT_TIMEOUT_S} s")
                    return DIED
                time.sleep(0.05)  # poll interval

    def output(self):
        """Returns the output of the command up to now."""
        return (self.folder / "output").read_text(errors="replace")

    def wait_for(self, text, timeout_s=60):
        """Waits until the command has printed `text`. The time limit counts from the start of the command. Returns the
        whole output."""
        deadline = None
        while text not in (output := self.output()):
            lines = self._status_lines()
            if deadline is None and lines:
                deadline = time.monotonic() + timeout_s
            if (lines and lines[-1] != "running") or self._qemu.poll() is not None:
                raise AssertionError(f"the command ended ({lines}) and never printed '{text}', but: {self.output()}")
            if time.monotonic() > (deadline or self._boot_deadline):
                raise AssertionError(f"the command did not print '{text}' within {timeout_s} s, but: {output}")
            time.sleep(0.02)  # poll interval
        return output

    def plug(self, in_):
        """Plugs the wire in (True) or pulls it (False)."""
        self._monitor("set_link", name="wire", up=in_)

    def freeze(self):
        """Stops the machine, as after a power cut: it sends nothing to its peers."""
        self._qemu.send_signal(signal.SIGSTOP)

    def _monitor(self, command, **arguments):
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(10)
            monitor.connect(str(self.folder / "monitor"))
            answers = monitor.makefile("r")
            answers.readline()
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                monitor.sendall(json.dumps(request).encode() + b"\n")
                while "event" in (answer := json.loads(answers.readline())):
                    pass
                if "error" in answer:
                    raise RuntimeError(f"QEMU refuses {command}: {answer['error']}")

    def _status_lines(self):
        """Returns the lines on the guest's status port: "running", then "exit N" or "failed: why"."""
        return (self.folder / "status").read_text().split("\n")[:-1]

    def _verdict(self, status):
        kind, _, rest = status.partition(" ")
        if kind == "exit" and rest.isdigit():
            return int(rest)
        self._complain(f"the guest did not reach the command: {status}")
        return DIED

    def _complain(self, what):
        print(f"guest: {what}", file=sys.stderr)
        for name in ("qemu", "console"):
            text = (self.folder / name).read_text(errors="replace").replace("\r", "")
            for line in text.splitlines()[-COMPLAINT_LINES:]:
                print(f"guest: {name}: {line}", file=sys.stderr)


def _die_with_parent():
    prctl_set_death_signal = 1
    ctypes.CDLL(None).prctl(prctl_set_death_signal, signal.SIGKILL)


def run(command, sink=None, **options):
    """Boots a guest for one command, with the options of Guest. Returns the exit code."""
    with Guest(command, **options) as guest:
        return guest.wait(sink or sys.stdout.buffer)


def shell(script, **options):
    """Runs a shell script in a guest. Returns (exit code, output)."""
    sink = io.BytesIO()
    code = run(["bash", "-c", script], sink=sink, **options)
    return code, sink.getvalue().decode(errors="replace")


def unittest_main(arguments=()):
    """Runs the tests of the calling file. Skips all of them if this machine cannot run a guest."""
    try:
        require()
    except Unavailable as reason:
        print(f"SKIPPED: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + list(arguments))


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("prepare", help="fetch the kernel if it is not in the cache")
    runner = actions.add_parser("run", help="run a command in a guest")
    runner.add_argument("--timeout", type=float, default=120, metavar="SECONDS",
                        help="time limit, after which the guest and its command are ended (default: %(default)s)")
    runner.add_argument("--results", metavar="FOLDER", help="folder whose files are kept after the end of the guest")
    runner.add_argument("--memory", type=int, default=2048, metavar="MIB",
                        help="memory of the guest (default: %(default)s)")
    runner.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="set a variable in the environment of the command")
    runner.add_argument("command", nargs="+", help="the command and its arguments, after --")
    return parser.parse_args()


def main():
    arguments = _arguments()
    # SIGTERM raises SystemExit, so that the guest and its files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        if arguments.action == "prepare":
            print(require().vmlinux)
            return 0
        environment = dict(pair.partition("=")[::2] for pair in arguments.env)
        return run(arguments.command, timeout_s=arguments.timeout, results=arguments.results,
                   memory_mib=arguments.memory, environment=environment)
    except Unavailable as reason:
        print(f"guest: SKIPPED: {reason}", file=sys.stderr)
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
