"""Fetches Debian's kernel for the guest as a package, and keeps it in the user's cache. It is never installed.

    prepare() -> Kernel      an ELF vmlinux to boot, and the modules that the guest loads, in this order

The package is the image that linux-image-amd64 depends on, because the cloud kernel has no rdma_rxe. Each version of
the package has a folder of its own in the cache.
"""

import contextlib
import dataclasses
import fcntl
import lzma
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

META_PACKAGE = "linux-image-amd64"
# Modules that the guest loads, without their dependencies. rdma_rxe requests crc32 from the crypto API, which depmod
# does not detect. Without crc32, rxe fails with "failed to add".
MODULES = (
    "virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay",
    "crc32_generic", "crc32c_generic", "dummy", "ib_uverbs", "rdma_ucm", "rdma_rxe",
)
FETCH_TIMEOUT_S = 300


class Unavailable(Exception):
    """This machine cannot run a guest. The text says why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    vmlinux: pathlib.Path
    modules: tuple  # paths, each after its dependencies
    version: str


def cache_root():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "loam" / "guest-kernel"


def _run(command, **options):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, **options).stdout
    except FileNotFoundError:
        raise Unavailable(f"there is no '{command[0]}' here; run scripts/setup") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"'{' '.join(command)}' took longer than {FETCH_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as failed:
        last = (failed.stderr.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"'{' '.join(command)}' failed: {last}") from None


def _candidate():
    """Returns the (package, version) of the kernel in the apt sources of this machine."""
    for line in _run(["apt-cache", "show", "--no-all-versions", META_PACKAGE]).splitlines():
        if line.startswith("Depends:"):
            package = line.split(":", 1)[1].split(",")[0].split()[0]
            for field in _run(["apt-cache", "show", "--no-all-versions", package]).splitlines():
                if field.startswith("Version:"):
                    return package, field.split()[1]
    raise Unavailable(f"the apt sources have no {META_PACKAGE}; run apt-get update")


def extract_vmlinux(image):
    """Returns the ELF kernel inside a bzImage. QEMU boots it directly (PVH), which saves about four seconds of
    emulation."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length - 4]  # the last four bytes are the unpacked size
    if payload[:6] != b"\xfd7zXZ\0":
        raise Unavailable("the kernel is not packed with xz as Debian 12's is; extend tests/rdma/kernel.py")
    vmlinux = lzma.decompress(payload)
    if vmlinux[:4] != b"\x7fELF":
        raise Unavailable("the kernel package has no ELF kernel at the expected place")
    return vmlinux


def _load_order(tree, release):
    """Returns the files of MODULES and of their dependencies, in the order in which they must be loaded."""
    _run([shutil.which("depmod", path="/usr/sbin:/sbin:/usr/bin:/bin") or "depmod", "-b", str(tree), release])
    base = tree / "lib/modules" / release
    needs = {}
    for line in (base / "modules.dep").read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    by_name = {pathlib.PurePath(module).name.removesuffix(".ko"): module for module in needs}
    order = []

    def add(module):
        if module in order:
            return
        for other in needs[module]:
            add(other)
        order.append(module)

    for name in MODULES:
        if name not in by_name:
            raise Unavailable(f"the kernel package has no module {name}")
        add(by_name[name])
    return [base / module for module in order]


def _unpack(package, folder):
    """Fetches `package` and puts the files that a guest needs into `folder`."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        scratch = pathlib.Path(scratch)
        sandbox = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
        _run(["apt-get", "-qq", *sandbox, "download", package], cwd=scratch)
        archive = next(scratch.glob("*.deb"))
        tree = scratch / "tree"
        _run(["dpkg", "-x", str(archive), str(tree)])
        release = next((tree / "lib/modules").iterdir()).name
        ready = scratch / "ready"
        (ready / "modules").mkdir(parents=True)
        (ready / "vmlinux").write_bytes(extract_vmlinux((tree / f"boot/vmlinuz-{release}").read_bytes()))
        for number, module in enumerate(_load_order(tree, release)):
            shutil.copy(module, ready / "modules" / f"{number:02}-{module.name}")
        ready.rename(folder)


@contextlib.contextmanager
def _lock(path):
    with open(path, "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def prepare():
    """Returns the kernel from the cache, or fetches it. Raises Unavailable if neither is possible."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / "lock"):
        try:
            package, version = _candidate()
            folder = root / f"{package}_{version.replace(':', '-')}"
            if not folder.exists():
                _unpack(package, folder)
        except Unavailable:
            # Without apt's lists or a network, the newest version in the cache is used.
            kept = sorted((path for path in root.iterdir() if (path / "vmlinux").exists()), key=os.path.getmtime)
            if not kept:
                raise
            folder = kept[-1]
    return Kernel(folder / "vmlinux", tuple(sorted((folder / "modules").iterdir())), folder.name)
