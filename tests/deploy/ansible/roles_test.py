"""Compares the roles of deploy/ansible with the servers that they configure.

    roles_test.py MANAGER NODE    the two server programs

Exits with 77 if Python has no module yaml. The tests that need Ansible are skipped where it is not installed."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

try:
    import yaml
except ImportError:
    print("skipped: Python has no module yaml; install the Debian package python3-yaml")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROLES = ROOT / "deploy/ansible/roles"
UNITS = "/etc/systemd/system"
PROGRAMS = {"commit_manager": sys.argv[1], "storage_node": sys.argv[2]}
# The options of the programs that a role sets from variables of its own.
SET_BY_ROLE = {"commit_manager": {"listen", "admin", "data", "nodes"}, "storage_node": {"listen", "admin", "manager"}}
# Type of a value in TOML → type in the specification of a role, and the list of the role's variables with such options.
TYPES = {
    str: ("str", None),
    int: ("int", {"commit_manager": "_commit_manager_numbers", "storage_node": "_storage_node_integers"}),
    float: ("float", {"storage_node": "_storage_node_fractions"}),
    bool: ("bool", {"storage_node": "_storage_node_flags"}),
}


def read(role, path):
    return yaml.safe_load((ROLES / role / path).read_text())


def options_of(role):
    """The options of the program with their defaults, without those that the role sets."""
    printed = subprocess.run([PROGRAMS[role], "--print-config"], check=True, capture_output=True, text=True, timeout=60)
    options = tomllib.loads(printed.stdout)
    return {name: value for name, value in options.items() if name not in SET_BY_ROLE[role]}


def specifications(role):
    """Yields (name, options) of each place where an inventory can set options of the program."""
    main = read(role, "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    yield f"{role}_options", main[f"{role}_options"]["options"]
    if role == "storage_node":
        yield "storage_node_instances[].options", main["storage_node_instances"]["options"]["options"]["options"]


def text_of(value):
    return "empty" if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


class OptionsTest(unittest.TestCase):
    def each(self):
        for role in PROGRAMS:
            for place, specified in specifications(role):
                yield role, place, options_of(role), specified

    def test_roles_have_every_option_and_no_others(self):
        for role, place, options, specified in self.each():
            with self.subTest(place=place):
                self.assertGreater(len(options), 10, f"--print-config of {PROGRAMS[role]}")
                self.assertEqual(set(options) - set(specified), set(), "the role lacks these options")
                self.assertEqual(set(specified) - set(options), set(), "the program lacks these options")

    def test_types_are_those_of_the_program(self):
        for role, place, options, specified in self.each():
            for name in options.keys() & specified.keys():
                with self.subTest(place=place, option=name):
                    self.assertEqual(specified[name]["type"], TYPES[type(options[name])][0])

    def test_defaults_are_those_of_the_program(self):
        for role, place, options, specified in self.each():
            for name in options.keys() & specified.keys():
                with self.subTest(place=place, option=name):
                    self.assertRegex(specified[name]["description"],
                                     rf"The default of the program is {re.escape(text_of(options[name]))}\.$")

    def test_templates_write_numbers_and_flags_as_such(self):
        for role in PROGRAMS:
            variables, options = read(role, "vars/main.yml"), options_of(role)
            for kind, (name, lists) in TYPES.items():
                if lists is None:
                    continue
                expected = {option for option, value in options.items() if type(value) is kind}
                if role == "commit_manager" and kind is int:
                    expected.add("nodes")
                with self.subTest(role=role, type=name):
                    self.assertEqual(set(variables[lists[role]]) if role in lists else set(), expected)


class FirewallTest(unittest.TestCase):
    def test_servers_start_after_the_firewall(self):
        unit = (ROLES / "common/templates/loam-firewall.service.j2").read_text()
        self.assertRegex(unit, r"(?m)^Before=.*\bloam-commit-manager\.service\b")
        folder = f"{UNITS}/loam-storage-node@.service.d/"
        after = []
        for task in read("common", "tasks/firewall.yml"):
            template = task.get("ansible.builtin.template", {})
            if template.get("dest", "").startswith(folder) and template["dest"].endswith(".conf"):
                after.append((ROLES / "common/templates" / template["src"]).read_text())
        self.assertRegex("\n".join(after), r"(?m)^After=.*\bloam-firewall\.service\b")


class MemoryTest(unittest.TestCase):
    """The memory that the role storage_node gives to `loam doctor`."""

    MIB = 1 << 20

    def bytes_of(self, **variables):
        """Evaluates the expression of the role."""
        if shutil.which("ansible-playbook") is None:
            self.skipTest("ansible-playbook is not installed")
        defaults = {"storage_node_options": {}, "storage_node_extra_options": {}}
        with tempfile.TemporaryDirectory() as folder:
            given = pathlib.Path(folder, "given.json")
            given.write_text(json.dumps({**defaults, **variables}))
            play = pathlib.Path(folder, "play.yml")
            play.write_text(yaml.safe_dump([{
                "hosts": "localhost", "connection": "local", "gather_facts": False,
                "vars_files": [str(given), str(ROLES / "storage_node/vars/main.yml")],
                "tasks": [{"ansible.builtin.copy": {"dest": f"{folder}/bytes", "mode": "0600",
                                                    "content": "{{ _storage_node_bytes }}"}}]}]))
            done = subprocess.run(["ansible-playbook", "--inventory", "localhost,", play], capture_output=True, text=True,
                                  check=False, timeout=120,
                                  env={**os.environ, "ANSIBLE_LOCAL_TEMP": folder, "ANSIBLE_REMOTE_TEMP": folder})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return int(pathlib.Path(folder, "bytes").read_text())

    def test_memory_of_intents_is_included(self):
        mib = self.MIB
        self.assertEqual(self.bytes_of(storage_node_stopped=[{"name": "1"}]), (1024 + 32) * mib)
        self.assertEqual(self.bytes_of(storage_node_stopped=[{"name": "1"}, {"name": "2", "options": {
            "memory": "256MiB", "intent-memory": "1GiB"}}], storage_node_options={"memory": "64GiB"}),
            (64 * 1024 + 2 * 1024 + 256 + 1024) * mib)
        self.assertEqual(self.bytes_of(storage_node_stopped=[{"name": "1", "options": {"memory": "128MiB"}}],
                                       storage_node_options={"intent-memory": 0}), (128 + 16) * mib)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
