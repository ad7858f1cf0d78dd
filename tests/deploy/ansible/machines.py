"""Machines with a real systemd, for tests of the deployment: systemd-nspawn containers in a network of their own.

    confined([sys.executable, "test.py", "--inside"])    in the test that a user starts
    with Machines(folder, 3) as machines:                in test.py --inside
        machines.run(1, "systemctl is-system-running")

`confined` starts a command in new namespaces of processes, mounts and networks. When the test ends, or is killed, the
kernel ends them all, so that no machine, mount or network device stays behind.

All machines share one root of Debian 12, which is made once in the cache of the user, and write into an overlay of
their own. They reach each other and the confined test, and nothing else."""

import contextlib
import ctypes
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

BRIDGE = "br-loam"
NETWORK = "10.77.0"
DEADLINE_S = 1800
SUITE = "bookworm"
# The packages of a bare host. Everything else has to come from the folder of packages.
BARE = "systemd,systemd-sysv,dbus,openssh-server,python3,sudo,iproute2,procps,ca-certificates"
TOOLS = ("mmdebstrap", "systemd-nspawn", "ip", "ssh", "ssh-keygen")
PR_SET_PDEATHSIG = 1


def missing():
    """Returns why machines cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "machines need root"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"missing: {', '.join(absent)}; run scripts/setup"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "/sys/fs/cgroup is read-only, so that systemd cannot run in a machine"
    with tempfile.TemporaryDirectory() as folder:
        parts = [os.path.join(folder, part) for part in ("lower", "upper", "work", "merged")]
        for part in parts:
            os.mkdir(part)
        options = "lowerdir={},upperdir={},workdir={}".format(*parts)
        probe = confined(["mount", "-t", "overlay", "overlay", "-o", options, parts[3]], capture_output=True, text=True)
        return "" if probe.returncode == 0 else f"namespaces or overlays are forbidden: {probe.stderr.strip()}"


def confined(command, network=False, **options):
    """Runs a command in namespaces that end with this process; with `network`, in the network of this process."""
    libc = ctypes.CDLL(None)
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *([] if network else ["--net"])]
    return subprocess.run(["unshare", *namespaces, *map(str, command)], check=False, stdin=subprocess.DEVNULL,
                          preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), **options)


def cached(name, key, make):
    """Returns the folder of the cache that `make(folder)` has made for this key."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "loam/deployment"
    place = cache / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with open(cache / f"{name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                made = cache / f"{name}.new"
                shutil.rmtree(made, ignore_errors=True)  # of a run that was killed
                made.mkdir()
                make(made)
                made.rename(place)
    return place


def call(*command, check=True, **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def wait(condition, what, deadline_s=DEADLINE_S):
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(0.1)  # poll interval


def make_root():
    """Returns the root of all machines. Makes it in about a minute, unless it is in the cache."""
    def make(folder):
        call("mmdebstrap", "--variant=minbase", f"--include={BARE}", SUITE, folder)

    return cached("root", f"{SUITE} {BARE}", make)


class Machine:
    """One machine: its overlay, its address and its process."""

    def __init__(self, folder, number):
        self.name = f"loam-{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.folder = folder / self.name
        self.merged = self.folder / "merged"
        self.process = None

    def prepare(self, root, public_key):
        for part in ("upper", "work", "merged"):
            (self.folder / part).mkdir(parents=True)
        call("mount", "-t", "overlay", "overlay", "-o",
             f"lowerdir={root},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}", self.merged)
        files = {
            "etc/hostname": f"{self.name}\n",
            "etc/machine-id": "",
            "etc/systemd/network/10-host0.network": f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\n",
            "root/.ssh/authorized_keys": public_key,
            # A bare host of this test has no network, so the sources of Debian would only cost time.
            "etc/apt/sources.list": "",
        }
        for name, text in files.items():
            path = self.merged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        call("chroot", self.merged, "systemctl", "enable", "systemd-networkd", "ssh")

    def start(self):
        log = open(self.folder / "console.log", "ab")
        self.process = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
             f"--network-bridge={BRIDGE}", f"--machine={self.name}", f"--directory={self.merged}", "--link-journal=no",
             "--console=pipe"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        log.close()

    def stop(self):
        """Ends the machine as a power cut does."""
        if self.process is None:
            return
        # The first process of the machine is a child of systemd-nspawn. Its end ends all others, and then systemd-nspawn.
        first = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in first or [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        self.process = None
        # The kernel removes the network device of the machine a moment later.
        call("ip", "link", "delete", f"vb-{self.name}", check=False)


class Machines:
    """Machines `loam-1` to `loam-N` with the addresses 10.77.0.11 and following, for a confined process."""

    def __init__(self, folder, number):
        self.folder = pathlib.Path(folder)
        self.key = self.folder / "key"
        self.machines = {n: Machine(self.folder, n) for n in range(1, number + 1)}

    def __enter__(self):
        root = make_root()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clean()
        try:
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
            public_key = self.key.with_suffix(".pub").read_text()
            for command in (f"link add {BRIDGE} type bridge", f"addr add {NETWORK}.1/24 dev {BRIDGE}", f"link set {BRIDGE} up",
                            "link set lo up"):  # fmt: skip
                call("ip", *command.split())
            for machine in self.machines.values():
                machine.prepare(root, public_key)
                machine.start()
            for number in self.machines:
                self.wait_for_ssh(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for machine in self.machines.values():
            machine.stop()
        self._clean()

    def _clean(self):
        for machine in self.machines.values():
            call("umount", "--lazy", machine.merged, check=False)
            shutil.rmtree(machine.folder, ignore_errors=True)
        for path in self.folder.glob("key*"):
            path.unlink()

    def ssh_options(self):
        return ["-i", str(self.key), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
                "-o", "ConnectTimeout=5"]  # fmt: skip

    def run(self, number, command, check=True):
        """Runs a shell command on a machine as root. Returns its standard output."""
        done = call("ssh", *self.ssh_options(), f"root@{self.machines[number].address}", command, check=check,
                    timeout=DEADLINE_S, stdin=subprocess.DEVNULL)
        return done.stdout if check else done

    def wait_for_ssh(self, number):
        def answers():
            return self.run(number, "true", check=False).returncode == 0

        wait(answers, f"machine {number} answers ssh")

    def reboot(self, number):
        """Cuts the power of a machine and starts it again."""
        self.machines[number].stop()
        self.machines[number].start()
        self.wait_for_ssh(number)
