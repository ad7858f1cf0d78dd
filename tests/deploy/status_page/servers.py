"""A cluster of the two server programs, with a token for changes by HTTP."""

import http.client
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "common/program"))
import server_program_checks as programs  # noqa: E402

TOKEN = "a-token-of-the-tests-0123456789"
DEADLINE_S = 120


class Cluster:
    """A commit manager and a storage node on free ports. They end with the `with` block."""

    def __init__(self, manager, node, memory="256MiB"):
        self.folder = tempfile.TemporaryDirectory()
        self.token_file = pathlib.Path(self.folder.name) / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.token_file.chmod(0o600)
        self.manager = programs.Server(manager, "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", 1,
                                       "--client-lease", "60s", "--admin-token-file", self.token_file)
        self.node = programs.Server(node, "--manager", self.manager.address, "--listen", "tcp://127.0.0.1:0", "--admin",
                                    "127.0.0.1:0", "--memory", memory, "--page", "256KiB")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in (self.node, self.manager):
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()
            server.process.stdout.close()
        self.folder.cleanup()

    def create_tables(self, names):
        client = Client(self.manager.admin)  # the server closes connections that were idle for 5 s
        for name in names:
            status, reply = client.post("/api/CreateTable", {
                "name": name, "kind": "TRANSACTIONAL", "fields": [{"name": "id", "type": "INT64"}, {"name": "note", "type": "TEXT"}]})
            assert status == 200, f"{name}: {status} {reply}"
        client.connection.close()


class Client:
    """Requests to one administration port over one connection."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
        self.headers = {}

    def send(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {})
        reply = self.connection.getresponse()
        self.headers = dict(reply.getheaders())
        return reply.status, reply.read()

    def get(self, path, **headers):
        """Returns status and text, or the object if the reply is JSON."""
        status, body = self.send("GET", path, headers=headers)
        return status, json.loads(body) if self.headers["Content-Type"] == "application/json" else body

    def post(self, path, message, token=TOKEN, **headers):
        status, body = self.send("POST", path, message if isinstance(message, str) else json.dumps(message), {
            "Content-Type": "application/json", "Authorization": f"Bearer {token}", **headers})
        return status, json.loads(body) if self.headers["Content-Type"] == "application/json" else body.decode()
