"""Tests scripts/setup with scripts in the place of apt-get, dpkg-query, id and sudo: which packages it installs, and
its error messages."""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts/setup"
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'


class Setup(unittest.TestCase):
    """The folder `installed` has one file for each package. The script that replaces apt-get logs its arguments and
    adds these files."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="loam_setup_"))
        self.addCleanup(shutil.rmtree, self.root)
        self.installed = self.root / "installed"
        self.installed.mkdir()
        self.bin = self.root / "bin"
        self.bin.mkdir()
        self.log = self.root / "log"
        self.log.touch()
        for tool in ("bash", "cat", "chmod", "env", "mkdir", "rm", "tee", "touch"):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.stand_in("dpkg-query", f'[ -e "{self.installed}/$3" ] && echo -n installed')
        self.stand_in("apt-get", f'echo "apt-get $*" >>"{self.log}"; for p in "$@"; do case "$p" in '
                      f'-*|update|install|*=*) ;; *) touch "{self.installed}/$p" ;; esac; done')  # fmt: skip
        self.stand_in("id", "echo 0")
        self.os_release = DEBIAN
        self.policy = self.root / "policy-rc.d"
        self.postgresql = self.root / "postgresql-common"

    def stand_in(self, name, script):
        path = self.bin / name
        path.write_text(f"#!{self.bin}/bash\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_setup(self, *arguments):
        release = self.root / "os-release"
        release.write_text(self.os_release)
        env = {"PATH": str(self.bin), "LOAM_OS_RELEASE": str(release), "LOAM_SERVICE_POLICY": str(self.policy),
               "LOAM_POSTGRESQL_FOLDER": str(self.postgresql)}  # fmt: skip
        return subprocess.run([shutil.which("bash"), SETUP, *arguments], env=env, capture_output=True, text=True)

    def packages(self):
        return self.run_setup("--print").stdout.split()

    def test_installs_once_and_only_what_is_missing(self):
        self.assertIn("cmake", self.packages())
        (self.installed / "cmake").touch()
        first = self.run_setup()
        self.assertEqual(first.returncode, 0, first.stderr)
        update, install = self.log.read_text().splitlines()
        self.assertTrue(update.endswith(" update"))
        self.assertIn(" ninja-build ", install)
        self.assertIn("--no-install-recommends", install)
        self.assertNotIn(" cmake ", install)
        second = self.run_setup()
        self.assertEqual(second.returncode, 0)
        self.assertIn("nothing to do", second.stdout)
        self.assertEqual(len(self.log.read_text().splitlines()), 2)

    def test_package_that_apt_did_not_install_is_an_error(self):
        self.stand_in("apt-get", "true")
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("still missing", result.stderr)

    def test_failing_apt_is_an_error(self):
        self.stand_in("apt-get", "exit 100")
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("fix the network", result.stderr)

    def test_missing_root_and_sudo_is_an_error(self):
        self.stand_in("id", "echo 1000")
        result = self.run_setup()
        self.assertEqual(result.returncode, 1)
        self.assertIn("neither root nor sudo", result.stderr)
        self.assertEqual(self.log.read_text(), "")

    def test_no_service_is_started(self):
        seen = self.root / "seen"
        self.stand_in("apt-get", f'case "$*" in *update) exit 0 ;; esac; [ -x "{self.policy}" ] && cat "{self.policy}" >"{seen}"; exit 100')
        self.run_setup()
        self.assertIn("exit 101", seen.read_text())  # Debian's answer for: this action is forbidden
        self.assertFalse(self.policy.exists(), "left behind")

    def test_a_policy_of_the_host_stays(self):
        self.policy.write_text("mine")
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual(self.policy.read_text(), "mine")

    def test_postgresql_makes_no_database(self):
        self.assertEqual(self.run_setup().returncode, 0)
        settings = self.postgresql / "createcluster.d/loam.conf"
        self.assertEqual(settings.read_text(), "create_main_cluster = false\n")

    def test_settings_of_an_installed_postgresql_stay(self):
        self.postgresql.mkdir()
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual(list(self.postgresql.iterdir()), [])

    def test_installs_through_sudo(self):
        self.policy.touch()
        self.postgresql.mkdir()
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", f'echo sudo >>"{self.log}"; exec "$@"')
        self.assertEqual(self.run_setup().returncode, 0)
        self.assertEqual(self.log.read_text().splitlines().count("sudo"), 2)

    def test_another_system_is_refused(self):
        for self.os_release in ("", 'ID=fedora\nVERSION_ID=40\nPRETTY_NAME="Fedora Linux 40"\n', "ID=debian\nVERSION_ID=11\n"):
            result = self.run_setup()
            self.assertEqual(result.returncode, 1)
            self.assertIn("Debian 12", result.stderr)
        self.assertEqual(self.log.read_text(), "")

    def test_wrong_use_is_refused(self):
        self.assertEqual(self.run_setup("--what").returncode, 2)
        self.assertEqual(self.run_setup("--help").returncode, 0)
        self.assertEqual(self.log.read_text(), "")

    def test_packages_are_named_once(self):
        packages = self.packages()
        self.assertEqual(len(packages), len(set(packages)))
        self.assertEqual(len(packages), len(os.linesep.join(packages).split()))


if __name__ == "__main__":
    unittest.main()
