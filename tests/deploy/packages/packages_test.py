"""Tests the Debian packages: their files, maintainer scripts, units, manual pages and completions.

    packages_test.py [FOLDER]       tests the packages that `make deb` has made (build/deb)
    packages_test.py --make BUILD   makes packages of the programs of a build folder first, in its subfolder deb

Exits with 77 if there are no packages or no programs."""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path([sys.argv.pop(1), sys.argv.pop(1)][1]).resolve() if "--make" in sys.argv[1:2] else None
FOLDER = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else ROOT / "build/deb"
UNITS = ("loam-commit-manager.service", "loam-storage-node@1.service")
MOST_EXPOSURE = 3.0  # of `systemd-analyze security`, on its scale from 0 to 10
# Package → patterns of its files. It has a file for each pattern, and no others.
DOCUMENTS = r"usr/share/doc/{}/(copyright|changelog\.gz|[\w-]+\.md|examples/[\w.-]+)"
FILES = {
    "loam-server": (
        r"usr/bin/loam-commit-manager",
        r"usr/bin/loam-storage-node",
        r"etc/loam/commit-manager\.toml",
        r"etc/loam/storage-node\.toml",
        r"etc/needrestart/conf\.d/loam\.conf",
        r"lib/systemd/system/loam-commit-manager\.service",
        r"lib/systemd/system/loam-storage-node@\.service",
        r"usr/lib/sysusers\.d/loam-server\.conf",
        r"usr/lib/tmpfiles\.d/loam-server\.conf",
        r"usr/share/man/man8/loam-(commit-manager|storage-node)\.8\.gz",
    ),
    "loam": (
        r"usr/bin/loam",
        r"usr/share/loam/(README\.md|flights-2013-01\.csv\.gz)",
        r"usr/share/loam/monitoring/prometheus\.yml",
        r"usr/share/loam/monitoring/targets/local\.yml",
        r"usr/share/loam/monitoring/rules/loam\.yml",
        r"usr/share/loam/monitoring/grafana/[\w-]+\.json",
        r"usr/share/bash-completion/completions/loam",
        r"usr/share/zsh/vendor-completions/_loam",
        r"usr/share/fish/vendor_completions\.d/loam\.fish",
        r"usr/share/man/man1/loam\.1\.gz",
    ),
    "loam-bench": (r"usr/bin/loam-bench", r"usr/share/man/man1/loam-bench\.1\.gz"),
    "loam-rdma": (
        r"usr/lib/loam/loam-rdma\.so",
        r"lib/systemd/system/loam-commit-manager\.service\.d/10-rdma\.conf",
        r"lib/systemd/system/loam-storage-node@\.service\.d/10-rdma\.conf",
    ),
    "libloam-dev": (
        r"usr/include/loam/.*\.h",
        r"usr/lib/libloam_\w+\.a",
        r"usr/lib/cmake/loam/loam\w+(-\w+)?\.cmake",
        r"usr/lib/[\w-]+/pkgconfig/loam\.pc",
        r"usr/share/lintian/overrides/libloam-dev",
    ),
}
WITH_PROGRAMS = ("loam-server", "loam", "loam-bench", "loam-rdma")


def run(*command, check=True, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, timeout=300, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode} of {command}\n{done.stdout}\n{done.stderr}")
    return done


def package_file(name):
    found = list(FOLDER.glob(f"{name}_*.deb"))
    return found[0] if len(found) == 1 else None


def setUpModule():
    """Extracts all packages once."""
    holder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(holder.cleanup)
    PackageTest.base = pathlib.Path(holder.name)
    PackageTest.server = PackageTest.base / "loam-server"
    for name in FILES:
        run("dpkg-deb", "--extract", package_file(name), PackageTest.base / name)
        run("dpkg-deb", "--control", package_file(name), PackageTest.base / f"{name}.control")


class PackageTest(unittest.TestCase):
    """The base of the tests. setUpModule() sets its folders."""

    base = server = None

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def new_folder(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        return pathlib.Path(holder.name)


class ContentsTest(PackageTest):
    def test_packages_have_the_listed_files_and_no_others(self):
        for name, patterns in FILES.items():
            root = self.base / name
            files = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_symlink() or not p.is_dir()}
            for pattern in (*patterns, DOCUMENTS.format(name)):
                found = {f for f in files if re.fullmatch(pattern, f)}
                self.assertTrue(found, f"{name} lacks {pattern}")
                files -= found
            self.assertEqual(files, set(), f"{name} has files that its list does not name")

    def test_conffiles(self):
        listed = (self.base / "loam-server.control/conffiles").read_text().split()
        self.assertEqual(listed, ["/etc/loam/commit-manager.toml", "/etc/loam/storage-node.toml",
                                  "/etc/needrestart/conf.d/loam.conf"])
        for name in FILES:
            if name != "loam-server":
                self.assertFalse((self.base / f"{name}.control/conffiles").exists(), name)

    def test_all_packages_have_one_version(self):
        versions = {run("dpkg-deb", "--field", package_file(name), "Version").stdout for name in FILES}
        self.assertEqual(len(versions), 1, versions)

    def test_debug_symbols_belong_to_the_stripped_programs(self):
        for name in WITH_PROGRAMS:
            symbols = package_file(f"{name}-dbgsym")
            self.assertIsNotNone(symbols, f"there is no {name}-dbgsym")
            listed = run("dpkg-deb", "--contents", symbols).stdout
            programs = [p for p in (self.base / name).rglob("*") if re.search(r"/(usr/bin/[\w-]+|loam-rdma\.so)$", str(p))]
            self.assertTrue(programs, name)
            for program in programs:
                notes = run("readelf", "--notes", "--section-headers", program).stdout
                self.assertNotIn(".debug_info", notes, program)
                build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)[1]
                self.assertIn(f".build-id/{build_id[:2]}/{build_id[2:]}.debug", listed, program)

    def test_monitoring_is_that_of_the_tree(self):
        source, installed = ROOT / "deploy/monitoring", self.base / "loam/usr/share/loam/monitoring"
        expected = {path.relative_to(source): path.read_bytes() for path in source.rglob("*")
                    if path.is_file() and "tests" not in path.relative_to(source).parts}
        self.assertGreater(len(expected), 5)
        found = {path.relative_to(installed): path.read_bytes() for path in installed.rglob("*") if path.is_file()}
        self.assertEqual(found, expected)

    def test_pkg_config_names_installed_folders(self):
        pc = next((self.base / "libloam-dev").rglob("loam.pc")).read_text()
        self.assertIn("prefix=/usr\n", pc)
        self.assertIn("libdir=${prefix}/lib\n", pc)

    def test_lintian_finds_no_error(self):
        self.need("lintian")
        files = [package_file(name) for name in FILES]
        done = run("lintian", "--allow-root", "--fail-on", "error", *files, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotRegex(done.stdout, r"(?m)^E:")


class MaintainerScriptsTest(PackageTest):
    def scripts(self):
        """Yields (name, text without comments) of all maintainer scripts."""
        for name in FILES:
            for script in ("preinst", "postinst", "prerm", "postrm"):
                path = self.base / f"{name}.control" / script
                if path.exists():
                    yield f"{name}.{script}", re.sub(r"(?m)^\s*#.*$", "", path.read_text())

    def test_only_the_servers_have_scripts(self):
        names = {name for name, _ in self.scripts() if not name.startswith("loam-server.")}
        self.assertEqual(names, set())

    def test_no_script_starts_stops_or_restarts_a_process(self):
        managers = re.compile(r"\b(systemctl|deb-systemd-invoke|invoke-rc\.d|service)\b(?P<rest>.*)")
        verbs = re.compile(r"\b(re)?(start|stop|kill|isolate|try-restart|reload-or-restart|condrestart)\b")
        found = 0
        for name, text in self.scripts():
            self.assertNotRegex(text, r"\b(kill|pkill|killall|start-stop-daemon|fuser|reboot)\b", name)
            for line in text.splitlines():
                match = managers.search(line)
                if match and "deb-systemd-helper" not in line:
                    found += 1
                    self.assertNotRegex(match["rest"], verbs, f"{name}: {line}")
        self.assertGreater(found, 0, "the test recognises no call of systemctl")

    def test_units_of_storage_nodes_stay_untouched(self):
        for name, text in self.scripts():
            for line in text.splitlines():
                if "loam-storage-node@" in line:
                    self.assertIn("systemd/system/*.wants/", line, f"{name}: {line}")

    def test_scripts_are_portable(self):
        self.need("dash")
        for path in (self.base / "loam-server.control").iterdir():
            if path.read_bytes().startswith(b"#!/bin/sh"):
                run("dash", "-n", path)

    def test_purge_removes_files_of_users(self):
        root = self.new_folder()
        link = root / "etc/systemd/system/multi-user.target.wants/loam-storage-node@1.service"
        other = root / "etc/systemd/system/multi-user.target.wants/other.service"
        for path in (root / "etc/loam/storage-node-1.toml", root / "var/lib/loam/commit-manager/state"):
            path.parent.mkdir(parents=True)
            path.touch()
        link.parent.mkdir(parents=True)
        for path in (link, other):
            path.symlink_to(f"/lib/systemd/system/{path.name}")
        postrm = self.base / "loam-server.control/postrm"
        for action in ("remove", "upgrade"):
            run("sh", postrm, action, env={**os.environ, "DPKG_ROOT": str(root)})
            self.assertTrue((root / "etc/loam/storage-node-1.toml").exists(), action)
            self.assertTrue((root / "var/lib/loam/commit-manager/state").exists(), action)
        run("sh", postrm, "purge", env={**os.environ, "DPKG_ROOT": str(root)})
        for path in (root / "etc/loam", root / "var/lib/loam", link):
            self.assertFalse(path.exists() or path.is_symlink(), path)
        self.assertTrue(other.is_symlink())

    def test_purge_keeps_the_state_if_asked(self):
        root = self.new_folder()
        for path in (root / "etc/loam/commit-manager.toml", root / "var/lib/loam/commit-manager/state"):
            path.parent.mkdir(parents=True)
            path.touch()
        (root / "var/lib/loam/empty").mkdir()
        environment = {**os.environ, "DPKG_ROOT": str(root), "LOAM_KEEP_STATE": "yes"}
        run("sh", self.base / "loam-server.control/postrm", "purge", env=environment)
        left = sorted(path.relative_to(root).as_posix() for path in (root / "var/lib").rglob("*"))
        self.assertEqual(left, ["var/lib/loam", "var/lib/loam/commit-manager", "var/lib/loam/commit-manager/state"])
        self.assertFalse((root / "etc/loam").exists())

    def test_purge_is_refused_while_a_server_runs(self):
        """Reads the processes from a folder in place of /proc, so that no program needs to lie in /usr/bin."""
        text = (self.base / "loam-server.control/postrm").read_text()
        guard = text[:text.index("  rm -rf")] + "fi\necho purges\n"
        for program, refused in (("/usr/bin/loam-storage-node", True), ("/usr/bin/loam-storage-node (deleted)", True),
                                 ("/usr/bin/loam-commit-manager", True), ("/usr/bin/loam-storage-node.dpkg-tmp", True),
                                 ("/usr/bin/loam", False), ("/opt/loam/bin/loam-storage-node", False)):
            with self.subTest(program=program):
                process = self.new_folder() / "4711"
                process.mkdir()
                (process / "exe").symlink_to(program)
                (process / "root").symlink_to("/")
                (process / "cmdline").write_bytes(b"loam-server\0--config\0file\0")
                script = guard.replace("/proc/", f"{process.parent}/")
                done = run("sh", "-c", script, "postrm", "purge", check=False)
                self.assertEqual(done.returncode, 1 if refused else 0, done.stdout + done.stderr)
                self.assertEqual("4711 loam-server --config file" in done.stderr, refused, done.stderr)
                self.assertEqual("purges" in done.stdout, not refused)

    def test_needrestart_leaves_the_servers_alone(self):
        self.need("perl")
        units = ("loam-storage-node@1.service", "loam-storage-node@a-2.service", "loam-commit-manager.service", "cron.service")
        program = """
            our %nrconf = (blacklist_rc => [], override_rc => {}); local $/; open(my $file, '<', shift) or die; eval <$file>;
            die $@ if $@;
            for my $unit (@ARGV) {
              my @ignored = grep { $unit =~ /$_/ } @{$nrconf{blacklist_rc}};
              my @kept = grep { $unit =~ /$_/ && !$nrconf{override_rc}->{$_} } keys %{$nrconf{override_rc}};
              print @ignored ? 'ignored' : @kept ? 'kept' : 'restarted', ' ';
            }"""
        done = run("perl", "-e", program, self.server / "etc/needrestart/conf.d/loam.conf", *units)
        self.assertEqual(done.stdout.split(), ["ignored", "ignored", "kept", "restarted"])


class ConfigurationTest(PackageTest):
    SET = {"commit-manager": {"listen", "admin", "data", "nodes"}, "storage-node": {"listen", "admin", "manager", "memory"}}

    def test_files_show_every_option_and_set_the_necessary_ones(self):
        for name, set_options in self.SET.items():
            text = (self.server / f"etc/loam/{name}.toml").read_text()
            self.assertEqual(set(tomllib.loads(text)), set_options)
            printed = run(self.server / f"usr/bin/loam-{name}", "--print-config").stdout
            options = re.findall(r"(?m)^([a-z-]+) = .*$", printed)
            self.assertGreater(len(options), 10)
            for option in options:
                self.assertRegex(text, rf"(?m)^#?{option} = ")
            self.assertLessEqual(max(map(len, text.splitlines())), 120)

    def test_programs_accept_the_files_and_their_commented_options(self):
        for name in self.SET:
            program, path = self.server / f"usr/bin/loam-{name}", self.server / f"etc/loam/{name}.toml"
            self.assertEqual(run(program, "--config", path, "--check-config").stdout, "ok\n")
            everything = self.new_folder() / "everything.toml"
            everything.write_text(re.sub(r"(?m)^#(?=[a-z-]+ = )", "", path.read_text()))
            self.assertEqual(run(program, "--config", path, "--print-config").stdout,
                             run(program, "--config", everything, "--print-config").stdout)

    def test_storage_nodes_have_a_fixed_address(self):
        config = tomllib.loads((self.server / "etc/loam/storage-node.toml").read_text())
        self.assertRegex(config["listen"], r":[1-9]\d+$")


class UnitsTest(PackageTest):
    def root(self, with_rdma):
        """A root with the units of the packages and the targets of this host."""
        root = self.new_folder()
        units = root / "lib/systemd/system"
        shutil.copytree(self.server / "lib/systemd/system", units)
        for path in pathlib.Path("/lib/systemd/system").glob("*.target"):
            shutil.copy(path, units, follow_symlinks=True)
        (root / "usr/bin").mkdir(parents=True)
        for name in ("loam-commit-manager", "loam-storage-node"):
            shutil.copy(self.server / "usr/bin" / name, root / "usr/bin")
        if with_rdma:
            shutil.copytree(self.base / "loam-rdma/lib/systemd/system", units, dirs_exist_ok=True)
        return root

    def test_systemd_accepts_the_units(self):
        self.need("systemd-analyze")
        for with_rdma in (False, True):
            done = run("systemd-analyze", "verify", "--man=no", f"--root={self.root(with_rdma)}", *UNITS)
            self.assertNotIn("loam", done.stderr)

    def test_sandbox(self):
        self.need("systemd-analyze")
        for with_rdma in (False, True):
            root = self.root(with_rdma)
            for unit in UNITS:
                printed = run("systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", unit).stdout
                exposure = float(re.search(r"Overall exposure level for \S+: ([\d.]+)", printed)[1])
                self.assertLessEqual(exposure, MOST_EXPOSURE, f"{unit} with_rdma={with_rdma}")

    def settings(self, name):
        text = (self.server / "lib/systemd/system" / name).read_text()
        return re.findall(r"(?m)^([A-Za-z]+)=(.*)$", text)

    def test_nothing_ends_a_storage_node(self):
        settings = dict(self.settings("loam-storage-node@.service"))
        for key in ("Requires", "Requisite", "BindsTo", "PartOf", "Conflicts", "Upholds", "WatchdogSec", "RuntimeMaxSec",
                    "StopWhenUnneeded", "MemoryMax"):
            self.assertNotIn(key, settings)
        self.assertEqual(settings["IgnoreOnIsolate"], "yes")
        self.assertLess(int(settings["OOMScoreAdjust"]), -500)
        self.assertEqual(settings["LimitMEMLOCK"], "infinity")

    def test_no_restart_after_exit_codes_that_need_an_operator(self):
        for name in ("loam-commit-manager.service", "loam-storage-node@.service"):
            settings = dict(self.settings(name))
            self.assertEqual((settings["Type"], settings["NotifyAccess"]), ("notify", "main"))
            self.assertEqual((settings["Restart"], settings["RestartPreventExitStatus"]), ("on-failure", "2 3"))

    def test_example_drop_ins_are_valid(self):
        self.need("systemd-analyze")
        root = self.root(with_rdma=False)
        folder = root / "lib/systemd/system/loam-storage-node@.service.d"
        folder.mkdir()
        examples = {path.name: path for path in (self.server / "usr/share/doc/loam-server/examples").iterdir()}
        self.assertEqual(set(examples), {"cores.conf", "huge-pages.conf", "memory.conf", "refuse-stop.conf"})
        for name in ("cores.conf", "memory.conf", "refuse-stop.conf"):
            shutil.copy(examples[name], folder)
        done = run("systemd-analyze", "verify", "--man=no", f"--root={root}", UNITS[1])
        self.assertNotIn("loam", done.stderr)
        run("systemd-tmpfiles", "--create", "--dry-run", examples["huge-pages.conf"], check=False)
        self.assertRegex(examples["huge-pages.conf"].read_text(), r"(?m)^w /sys/\S+ - - - - madvise$")

    def test_user_and_folder(self):
        self.assertRegex((self.server / "usr/lib/sysusers.d/loam-server.conf").read_text(), r"^u loam - .* /usr/sbin/nologin\n$")
        self.assertEqual((self.server / "usr/lib/tmpfiles.d/loam-server.conf").read_text(), "d /var/lib/loam 0750 loam loam -\n")


class DocumentsTest(PackageTest):
    PAGES = {"loam": ("loam", 1), "loam-bench": ("loam-bench", 1), "loam-commit-manager": ("loam-server", 8),
             "loam-storage-node": ("loam-server", 8)}

    def help_of(self, program, *path):
        """The output of --help of a program and of all its subcommands."""
        text = run(program, *path, "--help").stdout
        commands = text.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
        names = re.findall(r"(?m)^  ([a-z][\w-]*)(?: |$)", commands)
        return [text, *(t for name in names for t in self.help_of(program, *path, name))]

    def test_manual_pages_have_every_option(self):
        for name, (package, section) in self.PAGES.items():
            path = self.base / package / f"usr/share/man/man{section}/{name}.{section}.gz"
            page = gzip.decompress(path.read_bytes()).decode().replace("\\-", "-")
            options = {o for text in self.help_of(self.base / package / "usr/bin" / name) for o in re.findall(r"--[a-z][\w-]+", text)}
            self.assertGreater(len(options), 3)
            self.assertEqual({o for o in options if o not in page}, set(), name)
            if shutil.which("mandoc"):
                plain = path.with_suffix("")
                plain.write_bytes(gzip.decompress(path.read_bytes()))
                self.assertEqual(run("mandoc", "-T", "lint", "-W", "error", plain, check=False).stdout, "")

    def test_completions_have_every_subcommand_and_option(self):
        share = self.base / "loam/usr/share"
        texts = self.help_of(self.base / "loam/usr/bin/loam")
        options = {o for text in texts for o in re.findall(r"(?m)^  (?:-h,)?--([a-z][\w-]+)", text)}
        commands = set(re.findall(r"(?m)^  ([a-z]+) ", texts[0].partition("Subcommands:")[2]))
        self.assertIn("scan", commands)
        self.assertIn("where", options)
        scripts = {"bash": (share / "bash-completion/completions/loam", "--{}"),
                   "zsh": (share / "zsh/vendor-completions/_loam", "--{}["),
                   "fish": (share / "fish/vendor_completions.d/loam.fish", "-l {} ")}
        for shell, (path, form) in scripts.items():
            text = path.read_text()
            self.assertEqual({o for o in options if form.format(o) not in text}, set(), shell)
            self.assertEqual({c for c in commands if not re.search(rf"\b{c}\b", text)}, set(), shell)
            if shutil.which(shell):
                run(shell, "-n", path)

    def test_release_notes_and_documents_are_there(self):
        for name in ("loam-server", "loam", "libloam-dev"):
            self.assertTrue(list((self.base / name / "usr/share/doc" / name).glob("release-notes.md")), name)
        self.assertTrue((self.server / "usr/share/doc/loam-server/packages.md").exists())

    def test_links_of_documents_lead_to_files_of_the_package(self):
        links = 0
        for name in FILES:
            for path in (self.base / name / "usr/share/doc").rglob("*.md"):
                text = re.sub(r"(?ms)^ *```.*?^ *```$", "", path.read_text())
                for target in re.findall(r"\]\(([^()\s]+)\)", text):
                    file = target.partition("#")[0]
                    if "://" in target or not file:
                        continue
                    links += 1
                    found = self.base / name / file[1:] if file.startswith("/") else path.parent / file
                    self.assertTrue(found.exists(), f"{path.relative_to(self.base)} links to {target}")
        self.assertGreater(links, 50)

    def test_units_name_documents_of_their_package(self):
        named = [file for unit in (self.server / "lib/systemd/system").glob("*.service")
                 for file in re.findall(r"file://(/\S+)", unit.read_text())]
        self.assertTrue(named)
        for file in named:
            self.assertTrue((self.server / file[1:]).exists(), file)


def make_packages():
    """Makes the packages. Returns false if there are no programs."""
    global FOLDER
    FOLDER = BUILD / "deb"
    if not all((BUILD / "bin" / name).exists() for name in ("loam", "loam-bench", "loam-commit-manager", "loam-storage-node")):
        return False
    # These packages are only for tests. xz needs most of the time of dpkg-buildpackage, for the debug symbols.
    environment = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    done = subprocess.run([ROOT / "scripts/deb", "--build", BUILD, "--output", FOLDER], check=False, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"scripts/deb failed with exit code {done.returncode}")
    return True


def main():
    if BUILD and not make_packages():
        print(f"skipped: {BUILD}/bin has no programs; build them first")
        return 77
    missing = [name for name in FILES if package_file(name) is None]
    if missing:
        print(f"skipped: {FOLDER} has no package {', '.join(missing)}; run 'make deb' first")
        return 77
    unittest.main()
    return 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
