#!/usr/bin/env python3
"""Deploys a cluster on three machines with the playbooks of deploy/ansible, and checks what an operator relies on.

    sudo tests/deploy/ansible/deploy_test.py [--packages build/deb] [--playbook ansible-playbook]

The machines are bare Debian 12 without a network, so all packages come from a folder. The steps:

1. `site` in check mode on bare hosts, then for real, then again: the second run changes nothing.
2. A client outside the machines writes, reads and scans.
3. The commit manager is killed: systemd starts it again, and no record is lost.
4. A storage node is killed: it comes back, and says that its records are lost, until the loss is accepted.
5. A host of storage nodes loses power: its storage nodes come back the same way.
6. `upgrade` replaces the commit manager and the clients; storage nodes keep their processes and records.
7. `teardown` leaves nothing.

Exits with 77 if machines or Ansible are missing."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machines as nspawn  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = 77
RECORDS = 1_000
MANAGER = f"tcp://{nspawn.NETWORK}.11:7400"
ADMIN = f"{nspawn.NETWORK}.11:7410"
NODE_PORTS = (7401, 7402)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def step(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def version_of(package):
    return nspawn.call("dpkg-deb", "--field", package, "Version").stdout.strip()


def with_version(package, version, folder):
    """Writes a copy of a package with another version."""
    place = folder / "repack"
    nspawn.call("dpkg-deb", "--raw-extract", package, place)
    control = place / "DEBIAN/control"
    old = version_of(package)
    control.write_text(control.read_text().replace(old, version))
    nspawn.call("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", place, folder / package.name.replace(old, version))
    shutil.rmtree(place)


class Deployment:
    """The cluster of the test: its inventory, and the playbooks."""

    def __init__(self, machines, folder, packages, playbook):
        self.machines, self.folder, self.playbook = machines, folder, playbook
        self.packages = folder / "packages"
        shutil.rmtree(folder, ignore_errors=True)
        self.packages.mkdir(parents=True)
        self.own = [path for path in packages.glob("*.deb") if "dbgsym" not in path.name and not path.name.startswith(("loam-bench", "libloam"))]
        expect(self.own, f"{packages} has no packages; run 'make deb' first")
        self.version = version_of(self.own[0])
        for package in self.own:
            shutil.copy(package, self.packages)
        self.loam = self.extract_program()
        self.collect_dependencies()
        self.write_inventory()

    def extract_program(self):
        """The program `loam` of the package, for the client outside the machines."""
        package = next(path for path in self.own if path.name.startswith("loam_"))
        nspawn.call("dpkg-deb", "--extract", package, self.folder / "client")
        return self.folder / "client/usr/bin/loam"

    def collect_dependencies(self):
        """Downloads the packages of Debian that bare hosts lack, as an operator does for hosts without a network."""
        cache = self.machines.folder / "debian"
        root = self.machines.folder / "root"
        wanted = [*(f"/packages/{path.name}" for path in self.own), "prometheus", "prometheus-node-exporter", "nftables", "python3-apt"]
        if not cache.exists():
            cache.mkdir()
            with DownloadRoot(root, self.packages, cache) as merged:
                nspawn.call("chroot", merged, "apt-get", "-qq", "update")
                nspawn.call("chroot", merged, "apt-get", "-qq", "-y", "--no-install-recommends", "--download-only",
                            "-o", "Dir::Cache::archives=/debian", "install", *wanted)
        for package in cache.glob("*.deb"):
            shutil.copy(package, self.packages)

    def write_inventory(self):
        shutil.copytree(ROOT / "deploy/ansible/examples", self.folder / "inventory_folder", dirs_exist_ok=True)
        self.variables = {
            "ansible_user": "root", "ansible_become": False, "ansible_ssh_private_key_file": str(self.machines.key),
            "ansible_ssh_common_args": " ".join(self.machines.ssh_options()[2:]),
            "common_version": self.version, "common_package_source": "folder", "common_package_folder": str(self.packages),
            "common_firewall": False, "commit_manager_host": f"{nspawn.NETWORK}.11",
            "commit_manager_options": {"commit-log": "sync"},
            "commit_manager_service": {"PrivateUsers": "no"}, "storage_node_service": {"PrivateUsers": "no"},
            "storage_node_address": "{{ ansible_host }}", "storage_node_manager": MANAGER,
            "storage_node_instances": [{"name": str(port), "port": port} for port in NODE_PORTS],
            "storage_node_options": {"memory": "256MiB", "page": "1MiB"},
            "client_connect": MANAGER, "monitoring_cluster": "test", "monitoring_source": str(ROOT / "deploy/monitoring"),
        }  # fmt: skip
        self.write_variables()

    def write_variables(self):
        path = self.folder / "inventory_folder/inventory/group_vars/loam.yml"
        path.write_text(json.dumps(self.variables, indent=2))

    def play(self, name, *arguments, check=True):
        """Runs a playbook. Returns its output, and the number of changes."""
        began = time.monotonic()
        environment = {
            **os.environ, "ANSIBLE_CONFIG": str(ROOT / "deploy/ansible/examples/ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(self.folder / "collections"),
            "ANSIBLE_INVENTORY": str(self.folder / "inventory_folder/inventory/hosts.yml"), "ANSIBLE_LOCALHOST_WARNING": "false",
        }  # fmt: skip
        collection = self.folder / "collections/ansible_collections/loam/cluster"
        if not collection.exists():
            collection.parent.mkdir(parents=True)
            collection.symlink_to(ROOT / "deploy/ansible")
        done = self.machines.outside(self.playbook, f"loam.cluster.{name}", *arguments, check=False, env=environment, cwd=self.folder,
                                     stdin=subprocess.DEVNULL)  # fmt: skip
        log = self.folder / f"{name}-{time.strftime('%H%M%S')}.log"
        log.write_text(done.stdout + done.stderr)
        expect(not check or done.returncode == 0, f"{name} {arguments} failed, see {log}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}")
        changed = sum(int(number) for number in re.findall(r"changed=(\d+)", done.stdout))
        step(f"{name} {' '.join(arguments)}: {time.monotonic() - began:.0f} s, changed={changed}")
        return done, changed

    def client(self, *arguments, check=True):
        """Runs `loam` outside the machines."""
        environment = {**os.environ, "LOAM_CONNECT": MANAGER, "LOAM_ADMIN": ADMIN}
        return self.machines.outside(self.loam, *arguments, check=check, env=environment, stdin=subprocess.DEVNULL)

    def count(self):
        rows = self.client("scan", "t", "--aggregate", "count(*) as n, sum(value) as s", "--json").stdout
        return json.loads(rows)

    def ready(self):
        return self.client("status", "--json", check=False).returncode == 0

    def pids(self, number):
        shown = self.machines.run(number, "systemctl show --property=MainPID --value 'loam-storage-node@*'")
        return sorted(shown.split())


class DownloadRoot:
    """A writable view of the root with the network of this host, for downloads."""

    def __init__(self, root, packages, cache):
        self.root, self.packages, self.cache = root, packages, cache
        self.folder = cache.parent / "download"

    def __enter__(self):
        for part in ("upper", "work", "merged"):
            (self.folder / part).mkdir(parents=True)
        self.merged = self.folder / "merged"
        nspawn.call("mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={self.root},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}", self.merged)
        for source, name in ((self.packages, "packages"), (self.cache, "debian")):
            (self.merged / name).mkdir()
            nspawn.call("mount", "--bind", source, self.merged / name)
        (self.merged / "debian/partial").mkdir(exist_ok=True)
        shutil.copy("/etc/resolv.conf", self.merged / "etc/resolv.conf")
        return self.merged

    def __exit__(self, *_):
        for name in ("packages", "debian", ""):
            nspawn.call("umount", "--lazy", self.merged / name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def deploy(d):
    _, changed = d.play("site", "--check")
    expect(changed > 0, "check mode tells what it would change")
    began = time.monotonic()
    d.play("site")
    step(f"FIGURE bare hosts to a serving cluster: {(time.monotonic() - began) / 60:.1f} min")
    expect(d.ready(), "the cluster serves")
    _, changed = d.play("site")
    step(f"FIGURE changed of the second run: {changed}")
    expect(changed == 0, "the second run changes nothing")


def work(d):
    d.client("table", "create", "t", "--field", "value:int64")
    rows = d.folder / "rows.csv"
    rows.write_text("id,value\n" + "".join(f"{n},{n}\n" for n in range(RECORDS)))
    d.client("import", "t", rows, "--key", "id")
    expect(d.count() == {"n": RECORDS, "s": sum(range(RECORDS))}, f"a scan finds the records: {d.count()}")
    metrics = d.machines.outside("curl", "-sf", f"http://{ADMIN}/metrics").stdout
    expect("loam_manager_nodes_live 4" in metrics, "the metrics show all storage nodes")


def kill_manager(d):
    d.machines.run(1, "systemctl kill --kill-whom=main --signal=SIGKILL loam-commit-manager")
    nspawn.wait(d.ready, "the commit manager serves again")
    expect(d.count()["n"] == RECORDS, "no record is lost with the commit manager")
    step("a killed commit manager came back, and no record was lost")


def lost_nodes(d):
    nodes = [json.loads(line) for line in d.client("node", "list", "--json").stdout.splitlines()]
    return [node["node"] for node in nodes if node["state"] == "lost"]


def kill_node(d):
    d.machines.run(2, "systemctl kill --kill-whom=main --signal=SIGKILL loam-storage-node@7401")
    nspawn.wait(lambda: len(lost_nodes(d)) == 1, "the storage node is back and says that its records are lost")
    expect(d.client("scan", "t", check=False).returncode != 0, "a scan fails as long as records are lost")
    d.client("node", "accept-loss", lost_nodes(d)[0], "--yes")
    nspawn.wait(d.ready, "the cluster serves after the accepted loss")
    left = d.count()["n"]
    expect(0 < left < RECORDS, f"the records of the other storage nodes are there: {left}")
    step(f"a killed storage node came back without its records; {left} of {RECORDS} are left")


def reboot(d):
    d.machines.reboot(3)
    nspawn.wait(lambda: len(lost_nodes(d)) == 2, "both storage nodes are back after the power cut")
    for node in lost_nodes(d):
        d.client("node", "accept-loss", node, "--yes")
    nspawn.wait(d.ready, "the cluster serves after the reboot")
    step(f"the storage nodes of a rebooted host came back; {d.count()['n']} of {RECORDS} records are left")


def upgrade(d):
    newer = d.version + "+newer"
    for package in d.own:
        with_version(package, newer, d.packages)
    before, left = {n: d.pids(n) for n in (2, 3)}, d.count()
    manager = d.machines.run(1, "systemctl show --property=MainPID --value loam-commit-manager")
    d.play("upgrade", "-e", f"common_version={newer}")
    expect({n: d.pids(n) for n in (2, 3)} == before, "no storage node was restarted")
    expect(d.machines.run(1, "systemctl show --property=MainPID --value loam-commit-manager") != manager, "the commit manager was restarted")
    expect(d.count() == left, "no record was lost")
    expect(newer in d.machines.run(1, "dpkg-query -W loam-server"), "the new version is installed")
    step("upgrade replaced the commit manager and kept all records")


def teardown(d):
    refused, _ = d.play("teardown", check=False)
    expect(refused.returncode != 0 and d.ready(), "without an answer nothing is removed")
    d.play("teardown", "-e", '{"loam_teardown_answer": "lose all records", "loam_teardown_data": true}')
    for number in (1, 2, 3):
        left = d.machines.run(number, "ls -d /etc/loam /var/lib/loam /var/log/loam /usr/bin/loam* /etc/systemd/system/loam* 2>/dev/null; "
                              "dpkg-query -W 'loam*' 2>/dev/null; pgrep -a loam; true")  # fmt: skip
        expect(left.strip() == "", f"machine {number} keeps: {left}")
    step("teardown left nothing")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build/deb", help="folder of packages of `make deb`")
    parser.add_argument("--playbook", default=shutil.which("ansible-playbook"), help="path of ansible-playbook")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/deploy", help="folder of the machines")
    parser.add_argument("--short", action="store_true", help="only steps 1 to 4")
    arguments = parser.parse_args()
    reason = nspawn.missing() or ("" if arguments.playbook else "ansible-playbook is missing; install the Debian package ansible-core")
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    with nspawn.Machines(arguments.folder, 3) as machines:
        step("three bare machines run")
        d = Deployment(machines, arguments.folder / "controller", arguments.packages.resolve(), arguments.playbook)
        for part in (deploy, work, kill_manager, kill_node) if arguments.short else (deploy, work, kill_manager, kill_node, reboot, upgrade, teardown):
            part(d)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
