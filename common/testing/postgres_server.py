"""Runs a PostgreSQL server for a test or a benchmark: a server of its own in a temporary folder, on a Unix socket."""

import glob
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

START_S = 60
USER = "postgres"  # runs the server, which refuses to run as root

# Without a network, without background work, and without durability, because the data end with the server.
SETTINGS = {
    "listen_addresses": "",
    "autovacuum": "off",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}


def programs():
    """Returns the folder with the programs of the newest server, or None."""
    def version(folder):
        return int(re.search(r"/(\d+)/bin$", folder)[1])
    folders = [f for f in glob.glob("/usr/lib/postgresql/*/bin") if pathlib.Path(f, "postgres").exists()]
    return pathlib.Path(max(folders, key=version)) if folders else None


def reason_unusable():
    """Returns the reason why PostgreSQL cannot be used, or None if it can."""
    if programs() is None:
        return "PostgreSQL is not installed; scripts/setup installs it"
    if os.getuid() == 0 and not any(user.pw_name == USER for user in pwd.getpwall()):
        return f"there is no user {USER}; scripts/setup installs PostgreSQL with this user"
    return None


class Server:
    """A server with a folder of its own. Both end with the `stack`. `settings` add to SETTINGS, or replace some. Text
    is UTF-8 and ordered by bytes. Raises RuntimeError if the server does not start."""

    def __init__(self, stack, settings):
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="loam-postgres-")))
        if os.getuid() == 0:
            shutil.chown(self.folder, USER)
        self.run(programs() / "initdb", "-D", self.folder / "data", "-U", USER, "-A", "trust", "--no-sync",
                 "-E", "UTF8", "--locale=C")
        options = [word for name, value in (SETTINGS | settings).items() for word in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "wb") as log:
            process = subprocess.Popen(self.as_user(programs() / "postgres", "-D", self.folder / "data",
                                                    "-k", self.folder, *options), stdout=log, stderr=log)
        stack.callback(self.end, process)
        self.wait_until_ready(process)

    def as_user(self, *command):
        """Returns the command with a prefix: it runs as USER if this program runs as root, and the kernel sends it
        SIGINT when this program dies for any reason. A server then ends its backends."""
        other = ["--reuid", USER, "--regid", USER, "--init-groups"] if os.getuid() == 0 else []
        return ["setpriv", "--pdeathsig", "INT", *other, *map(str, command)]

    def run(self, *command):
        """Runs a program as the user of the server, and returns its output."""
        result = subprocess.run(self.as_user(*command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                cwd=self.folder)
        if result.returncode != 0:
            raise RuntimeError(f"{pathlib.Path(command[0]).name}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout

    def end(self, process):
        process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def wait_until_ready(self, process):
        deadline = time.monotonic() + START_S
        while subprocess.run([programs() / "pg_isready", "-q", "-h", self.folder]).returncode != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server does not start: " + (self.folder / "log").read_text()[-1000:])
            time.sleep(0.05)  # poll interval

    def psql(self, *arguments):
        """Returns the command that runs psql, which ends at the first error."""
        return [str(word) for word in (programs() / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", self.folder,
                                       "-U", USER, "-d", "postgres", *arguments)]

    def sql(self, text):
        """Runs statements, and returns the rows without alignment."""
        return self.run(*self.psql("-A", "-t", "-c", text)).strip()

    def version(self):
        return self.sql("SHOW server_version").split()[0]
