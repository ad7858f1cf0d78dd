"""Debian's own kernel for the guest: fetched as a package, never installed, kept in the user's cache.

    prepare() -> Kernel      what a guest boots: an ELF vmlinux, and the modules it needs in the order to load them

The cloud kernel has no rdma_rxe, so it is the image that linux-image-amd64 depends on. One folder of the cache holds one
version of the package; a newer package in the machine's apt sources gets a folder of its own.
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
# Modules that nothing names as a dependency of another. rdma_rxe asks the crypto API for crc32, which is no dependency
# that depmod sees; without it rxe fails with "failed to add".
MODULES = (
    "virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "overlay",
    "crc32_generic", "crc32c_generic", "dummy", "ib_uverbs", "rdma_ucm", "rdma_rxe",
)
FETCH_TIMEOUT_S = 300


class Unavailable(Exception):
    """The guest cannot run on this machine; the text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    vmlinux: pathlib.Path
    modules: tuple  # of paths, each after those it depends on
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
    """(package, version) that the apt sources of this machine offer."""
    for line in _run(["apt-cache", "show", "--no-all-versions", META_PACKAGE]).splitlines():
        if line.startswith("Depends:"):
            package = line.split(":", 1)[1].split(",")[0].split()[0]
            for field in _run(["apt-cache", "show", "--no-all-versions", package]).splitlines():
                if field.startswith("Version:"):
                    return package, field.split()[1]
    raise Unavailable(f"the apt sources have no {META_PACKAGE}; run apt-get update")


def extract_vmlinux(image):
    """The ELF kernel inside a bzImage. Booted directly (PVH) it starts about four seconds sooner under emulation."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start:start + length - 4]  # the last four bytes are the size of what is packed
    if payload[:6] != b"\xfd7zXZ\0":
        raise Unavailable("the kernel is not packed with xz as Debian 12's is; tests/rdma/kernel.py has to learn how")
    vmlinux = lzma.decompress(payload)
    if vmlinux[:4] != b"\x7fELF":
        raise Unavailable("the kernel package holds no ELF kernel where one was expected")
    return vmlinux


def _load_order(tree, release):
    """Files of MODULES and all that they need, dependencies first."""
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
    """Fetches `package` and fills `folder` with what a guest needs of it."""
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
    """The kernel, from the cache or fetched now. Unavailable if it cannot be had."""
    root = cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with _lock(root / "lock"):
        try:
            package, version = _candidate()
            folder = root / f"{package}_{version.replace(':', '-')}"
            if not folder.exists():
                _unpack(package, folder)
        except Unavailable:
            # Without apt's lists or a network: the newest that is here will do.
            kept = sorted((path for path in root.iterdir() if (path / "vmlinux").exists()), key=os.path.getmtime)
            if not kept:
                raise
            folder = kept[-1]
    return Kernel(folder / "vmlinux", tuple(sorted((folder / "modules").iterdir())), folder.name)
