#!/usr/bin/env python3
"""Deploys a cluster on three machines with the playbooks of deploy/ansible, and checks what an operator relies on.

    sudo tests/deploy/ansible/deploy_test.py [--packages build/deb] [--playbook ansible-playbook]

The machines are bare Debian 12 without a network, so all packages come from a folder. The steps:

1. `site` in check mode on bare hosts, then for real, then again: the second run changes nothing.
2. A client outside the machines writes, reads and scans.
3. The commit manager is killed: systemd starts it again, and no record is lost.
4. A storage node is killed: it comes back, and says that its records are lost, until the loss is accepted.
5. A host of storage nodes loses power: its storage nodes come back the same way.
6. `upgrade` replaces the commit manager and the clients while a client writes. Then APT replaces the packages of the
   storage nodes, and removes them from one host. The storage nodes keep their processes, and no acknowledged record is
   lost.
7. `teardown` leaves the state of the commit manager, and the second time nothing.
8. The tests of the packages for autopkgtest pass on one of the machines.

`--short` leaves out the check mode, the monitoring and the steps 5 to 8. Exits with 77 if machines or Ansible are
missing."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import machines as nspawn  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = 77
RECORDS = 1_000
MANAGER = f"tcp://{nspawn.NETWORK}.11:7400"
ADMIN = f"{nspawn.NETWORK}.11:7410"
NODE_PORTS = (7401, 7402)
# What the machines need besides the packages of Loam.
DEBIAN = ("nftables", "prometheus", "prometheus-node-exporter", "python3-apt")
# No service of a cluster, and no file that has the name of Loam, except those of the test itself.
LEFT = """
find / -xdev -iname '*loam*' -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/*' -not -path '/var/lib/loam/*'
dpkg-query -W -f '${Package} ${db:Status-Status}\\n' 'loam*' 2>/dev/null
systemctl list-units --all --plain --no-legend 'loam*'
pgrep -a loam
true
"""


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


def own_packages(folder):
    """The packages of Loam that a cluster needs."""
    own = [path for path in folder.glob("*.deb") if re.match(r"loam(-server)?_", path.name)]
    expect(len(own) == 2, f"{folder} lacks packages; run 'make deb' first")
    return own


def debian_packages(own):
    """Returns the folder of the Debian packages that bare hosts lack. Downloads them, unless they are in the cache.

    An operator does the same for hosts without a network."""
    depends = [nspawn.call("dpkg-deb", "--field", path, "Depends").stdout for path in own]

    def download(folder):
        root, merged = nspawn.make_root(), folder / "merged"
        for part in ("upper", "work", "merged"):
            (folder / part).mkdir()
        nspawn.call("mount", "-t", "overlay", "overlay", "-o",
                    f"lowerdir={root},upperdir={folder / 'upper'},workdir={folder / 'work'}", merged)
        for path in own:
            shutil.copy(path, merged)
        shutil.copy("/etc/resolv.conf", merged / "etc/resolv.conf")
        nspawn.call("chroot", merged, "apt-get", "-qq", "update")
        nspawn.call("chroot", merged, "apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", "install",
                    *(f"/{path.name}" for path in own), *DEBIAN)
        for package in (merged / "var/cache/apt/archives").glob("*.deb"):
            if not package.name.startswith("loam"):
                shutil.copy(package, folder)
        nspawn.call("umount", merged)
        for part in ("upper", "work", "merged"):
            shutil.rmtree(folder / part)

    return nspawn.cached("packages", "\n".join((nspawn.SUITE, nspawn.BARE, *DEBIAN, *depends)), download)


class Deployment:
    """The cluster of the test: its inventory, and the playbooks."""

    def __init__(self, machines, folder, packages, playbook, monitoring=True):
        self.machines, self.folder, self.playbook, self.monitoring = machines, folder, playbook, monitoring
        self.packages = folder / "packages"
        shutil.rmtree(folder, ignore_errors=True)
        self.packages.mkdir(parents=True)
        self.own = own_packages(packages)
        self.version = version_of(self.own[0])
        for package in (*self.own, *debian_packages(self.own).glob("*.deb")):
            shutil.copy(package, self.packages)
        self.loam = self.extract_program()
        self.write_inventory()

    def extract_program(self):
        """The program `loam` of the package, for the client outside the machines."""
        package = next(path for path in self.own if path.name.startswith("loam_"))
        nspawn.call("dpkg-deb", "--extract", package, self.folder / "client")
        return self.folder / "client/usr/bin/loam"

    def write_inventory(self):
        shutil.copytree(ROOT / "deploy/ansible/examples", self.folder / "inventory_folder", dirs_exist_ok=True)
        if not self.monitoring:
            hosts = self.folder / "inventory_folder/inventory/hosts.yml"
            hosts.write_text(hosts.read_text().replace("    loam_monitoring:\n      hosts:\n        loam-1:\n", ""))
        self.variables = {
            "ansible_user": "root", "ansible_become": False, "ansible_ssh_private_key_file": str(self.machines.key),
            "ansible_ssh_common_args": " ".join(self.machines.ssh_options()[2:]),
            "common_version": self.version, "common_package_source": "folder", "common_package_folder": str(self.packages),
            "common_firewall": False, "commit_manager_host": f"{nspawn.NETWORK}.11",
            "commit_manager_options": {"commit-log": "sync"},
            # The host may be busy, and a machine may have no users of its own.
            "commit_manager_service": {"PrivateUsers": "no", "WatchdogSec": "0", "TimeoutStartSec": "30min"},
            "storage_node_service": {"PrivateUsers": "no", "TimeoutStartSec": "30min"}, "commit_manager_wait_seconds": 1800,
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
            # No step fails because the machine is busy.
            "ANSIBLE_TIMEOUT": "300", "ANSIBLE_SSH_RETRIES": "5",
        }  # fmt: skip
        collection = self.folder / "collections/ansible_collections/loam/cluster"
        if not collection.exists():
            collection.parent.mkdir(parents=True)
            collection.symlink_to(ROOT / "deploy/ansible")
        done = nspawn.call(self.playbook, f"loam.cluster.{name}", *arguments, check=False, env=environment, cwd=self.folder,
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
        return nspawn.call(self.loam, *arguments, check=check, env=environment, stdin=subprocess.DEVNULL)

    def count(self):
        rows = self.client("scan", "t", "--aggregate", "count(*) as n, sum(value) as s", "--json").stdout
        return json.loads(rows)

    def ready(self):
        return self.client("status", "--json", check=False).returncode == 0

    def pids(self, number):
        shown = self.machines.run(number, "systemctl show --property=MainPID --value 'loam-storage-node@*'")
        return sorted(shown.split())


class Writer(threading.Thread):
    """A client outside the machines that writes one record after another until `stop`."""

    def __init__(self, deployment):
        super().__init__()
        self.deployment, self.acknowledged, self.failed, self.ending = deployment, [], 0, threading.Event()

    def run(self):
        key = RECORDS
        while not self.ending.is_set():
            if self.deployment.client("put", "t", key, f"value={key}", check=False).returncode == 0:
                self.acknowledged.append(key)
            else:
                self.failed += 1
            key += 1

    def written(self):
        """Waits for further acknowledged records."""
        count = len(self.acknowledged)
        nspawn.wait(lambda: len(self.acknowledged) > count + 5, "the client writes")

    def stop(self):
        self.ending.set()
        self.join()


def check(d):
    _, changed = d.play("site", "--check")
    expect(changed > 0, "check mode tells what it would change")


def deploy(d):
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
    with urllib.request.urlopen(f"http://{ADMIN}/metrics") as answer:
        metrics = answer.read().decode()
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
    before, left = {n: d.pids(n) for n in (2, 3)}, keys(d)
    manager = d.machines.run(1, "systemctl show --property=MainPID --value loam-commit-manager")
    writer = Writer(d)
    writer.start()
    try:
        writer.written()
        d.play("upgrade", "-e", f"common_version={newer}")
        expect(d.machines.run(1, "systemctl show --property=MainPID --value loam-commit-manager") != manager, "the commit manager was restarted")
        expect(newer in d.machines.run(1, "dpkg-query -W loam-server"), "the new version is installed")
        writer.written()
        # The playbook leaves the packages of storage nodes alone. An administrator may replace or remove them.
        for number in (2, 3):
            for package in d.packages.glob(f"loam*{newer}*.deb"):
                shutil.copy(package, d.machines.machines[number].merged / "var/tmp")
            d.machines.run(number, f"DEBIAN_FRONTEND=noninteractive apt-get install --yes /var/tmp/loam*{newer}*.deb; rm /var/tmp/loam*")
            expect(newer in d.machines.run(number, "dpkg-query -W loam-server"), f"the new version is installed on machine {number}")
        d.machines.run(3, "apt-get remove --yes loam-server")
        expect(d.machines.run(3, "test -e /usr/bin/loam-storage-node", check=False).returncode != 0, "the program was removed")
        writer.written()
    finally:
        writer.stop()
    expect({n: d.pids(n) for n in (2, 3)} == before, "no storage node was ended")
    found = keys(d)
    lost = (left | set(writer.acknowledged)) - found
    expect(not lost, f"{len(lost)} acknowledged records are lost: {sorted(lost)[:10]}")
    step(f"upgrade under load: {len(writer.acknowledged)} records acknowledged, {writer.failed} writes refused, none lost")


def keys(d):
    return {json.loads(line)["_key"] for line in d.client("scan", "t", "--select", "_key", "--json").stdout.splitlines()}


def remains(d, number):
    return d.machines.run(number, LEFT).split("\n")[:-1]


def teardown(d):
    refused, _ = d.play("teardown", check=False)
    expect(refused.returncode != 0 and d.ready(), "without an answer nothing is removed")
    answer = '"loam_teardown_answer": "lose all records"'
    for run, data in enumerate(("false", "false", "true")):
        _, changed = d.play("teardown", "-e", f'{{{answer}, "loam_teardown_data": {data}}}')
        expect((changed == 0) == (run == 1), f"only a second teardown changes nothing: run {run + 1} has changed={changed}")
        state = "" if data == "true" else "/var/lib/loam"
        expect(remains(d, 1) == [state] * bool(state), f"machine 1 keeps: {remains(d, 1)}")
        for number in (2, 3):
            expect(remains(d, number) == [], f"machine {number} keeps: {remains(d, number)}")
        if state:
            expect("state" in d.machines.run(1, "ls /var/lib/loam/commit-manager"), "the state of the commit manager stays")
    step("teardown left the state of the commit manager, and then nothing")


def autopkgtest(d):
    """Runs deploy/debian/tests on machine 3, as autopkgtest does in a root of its own."""
    place = d.machines.machines[3].merged / "var/tmp"
    for package in d.own:
        shutil.copy(package, place)
    shutil.copytree(ROOT / "deploy/debian/tests", place / "tests")
    for unit in ("loam-commit-manager", "loam-storage-node@"):
        settings = place.parents[1] / f"etc/systemd/system/{unit}.service.d/machine.conf"
        settings.parent.mkdir()
        settings.write_text("[Service]\nPrivateUsers=no\n")
    d.machines.run(3, "DEBIAN_FRONTEND=noninteractive apt-get install --yes /var/tmp/loam*.deb")
    for test in ("cluster", "units"):
        expect(f"{test}: passed" in d.machines.run(3, f"/var/tmp/tests/{test}"), f"the test {test} passes")
    step("the tests of the packages passed")


SHORT = (deploy, work, kill_manager, kill_node)
ALL = (check, *SHORT, reboot, upgrade, teardown, autopkgtest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build/deb", help="folder of packages of `make deb`")
    parser.add_argument("--playbook", default=shutil.which("ansible-playbook"), help="path of ansible-playbook")
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/deploy", help="folder of the machines")
    parser.add_argument("--short", action="store_true", help="only the steps that --help lists for it")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # in namespaces of its own
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)  # fill the cache, and end
    arguments = parser.parse_args()
    folder, packages = arguments.folder.resolve(), arguments.packages.resolve()
    if arguments.inside:
        return test(arguments, folder, packages)
    reason = nspawn.missing() or ("" if arguments.playbook else "ansible-playbook is missing; run scripts/setup")
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    # The downloads need the network of this host, and the test must not have it.
    step("preparing the root and the packages of Debian")
    this = [sys.executable, __file__]
    return nspawn.confined([*this, "--inside", "--prepare", "--packages", packages], network=True).returncode or \
        nspawn.confined([*this, "--inside", *sys.argv[1:]]).returncode


def test(arguments, folder, packages):
    if arguments.prepare:
        nspawn.make_root()
        debian_packages(own_packages(packages))
        return 0
    # Ansible keeps the sockets of its connections here, by address. Another run of the test has the same addresses.
    sockets = pathlib.Path.home() / ".ansible"
    sockets.mkdir(exist_ok=True)
    nspawn.call("mount", "-t", "tmpfs", "tmpfs", sockets)
    with nspawn.Machines(folder, 3) as machines:
        step("three bare machines run")
        d = Deployment(machines, folder / "controller", packages, arguments.playbook, monitoring=not arguments.short)
        for part in SHORT if arguments.short else ALL:
            part(d)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
