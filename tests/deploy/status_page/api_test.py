"""Tests the HTTP API of the administration ports and the files of the status page, without a browser."""

import contextlib
import gzip
import http.client
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import servers  # noqa: E402

MANAGER, NODE = sys.argv[1:3]
# Upper bound on the compressed size of all files of the page.
MAX_PAGE_BYTES = 150_000
HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class ApiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = servers.Cluster(MANAGER, NODE)
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.node = servers.Client(cls.cluster.node.admin)
        cls.addClassCleanup(cls.node.connection.close)
        cls.cluster.create_tables(["accounts", "orders"])

    def setUp(self):
        self.client = servers.Client(self.cluster.manager.admin)
        self.addCleanup(self.client.connection.close)

    def test_index_lists_the_methods_of_each_service(self):
        status, index = self.client.get("/api/")
        self.assertEqual((status, index["service"]), (200, "loam.commit.admin.ClusterAdmin"))
        self.assertIn("ListNodes", index["reads"])
        self.assertEqual(set(index["changes"]), {"CreateTable", "DropTable", "RenameTable", "AcceptLoss", "EndSession"})
        self.assertTrue(index["changes_allowed"])
        _, index = self.node.get("/api/")
        self.assertEqual((index["service"], index["changes"], index["changes_allowed"]),
                         ("loam.storage.admin.NodeAdmin", ["CancelQuery"], False))

    def test_every_read_method_answers(self):
        queries = {"DescribeTable": "?name=accounts", "ListTransactions": "?max=5", "ListTables": "?with_system=true"}
        for client in (self.client, self.node):
            for method in client.get("/api/")[1]["reads"]:
                status, reply = client.get(f"/api/{method}{queries.get(method, '')}")
                self.assertEqual(status, 200, f"{method}: {reply}")
                self.assertIsInstance(reply, dict)
        _, table = self.client.get("/api/DescribeTable?name=%61ccounts")
        self.assertEqual((table["name"], table["kind"]), ("accounts", "TRANSACTIONAL"))

    def test_a_node_is_reached_through_the_manager(self):
        _, direct = self.node.get("/api/Health")
        status, relayed = self.client.get(f"/api/node/{direct['node']}/Health")
        self.assertEqual((status, relayed), (200, direct))
        _, tables = self.client.get(f"/api/node/{direct['node']}/Statistics")
        self.assertGreaterEqual(len(tables["tables"]["rows"]), 2)
        _, light = self.client.get(f"/api/node/{direct['node']}/Statistics?without_tables=true")
        self.assertEqual(light["tables"]["rows"], [])
        for path, expected in (("/api/node/99/Health", 404), ("/api/node/x/Health", 404), ("/api/node/1", 404),
                               (f"/api/node/{direct['node']}/Nothing", 404),
                               (f"/api/node/{direct['node']}/Statistics?x=1", 400)):
            status, reply = self.client.get(path)
            self.assertEqual(status, expected, f"{path}: {reply}")
            self.assertTrue(reply["error"])
        self.assertEqual(self.client.post(f"/api/node/{direct['node']}/Health", {})[0], 405)

    def test_history_continues_after_a_time(self):
        for client, latency in ((self.client, "begins_p99_ns"), (self.node, "writes_p99_ns")):
            history = {}
            while len(history.get("samples", [])) < 2:  # one comes each second
                _, history = client.get("/api/History")
            names = [column["name"] for column in history["columns"]]
            self.assertIn(latency, names)
            self.assertEqual(len(names), len(history["samples"][0]["numbers"]))
            first = history["samples"][0]["at_ms"]
            _, later = client.get(f"/api/History?after_ms={first}")
            self.assertGreater(int(later["samples"][0]["at_ms"]), int(first))

    def test_page_files_are_small_and_protected(self):
        size = 0
        status, body = self.client.send("GET", "/")
        page = gzip.decompress(body).decode()
        size += len(body)
        self.assertEqual(status, 200)
        self.assertEqual(self.client.headers["Content-Encoding"], "gzip")
        self.assertNotRegex(page, r"(?i)<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://")
        for name, begin in HEADERS.items():
            self.assertTrue(self.client.headers[name].startswith(begin), f"{name}: {self.client.headers}")
        folder = servers.ROOT / "common/admin/page"
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in (".js", ".css", ".svg")]
        self.assertGreater(len(files), 5)
        for file in files:
            status, body = self.client.send("GET", f"/page/{file.name}")
            self.assertEqual(status, 200, file)
            self.assertEqual(gzip.decompress(body), file.read_bytes())
            size += len(body)
        print(f"page.compressed_bytes {size}")
        self.assertLessEqual(size, MAX_PAGE_BYTES)
        status, body = self.client.send("HEAD", "/")
        self.assertEqual((status, body), (200, b""))
        self.assertEqual(self.client.send("POST", "/")[0], 405)
        self.assertEqual(self.client.send("GET", "/page/nothing.js")[0], 404)
        self.assertEqual(self.client.send("GET", "/page/../index.html")[0], 404)

    def test_wrong_requests_are_refused_with_a_reason(self):
        for path, expected in (("/api/Nothing", 404), ("/api/Health/x", 404), ("/api/Health?x=1", 400),
                               ("/api/ListTransactions?max=-1", 400), ("/api/ListTransactions?max=4294967296", 400),
                               ("/api/ListTransactions?max", 400), ("/api/ListTables?with_system=1", 400),
                               ("/api/DescribeTable?name=%4", 400), ("/api/DescribeTable?name=%zz", 400),
                               ("/api/DescribeTable?name=nothing", 404), ("/api/EndSession?session=1", 405),
                               ("/api/" + "x" * 5000, 404)):
            status, reply = self.client.get(path)
            self.assertEqual(status, expected, f"{path}: {reply}")
            self.assertTrue(reply["error"] and reply["code"], reply)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            self.assertEqual(self.client.send(method, "/api/Health")[0], 405, method)
            self.assertEqual(self.client.headers["Allow"], "GET, HEAD")

    def test_host_must_be_this_server(self):
        port = self.cluster.manager.admin.rsplit(":", 1)[1]
        for path in ("/", "/page/page.js", "/api/", "/api/Health", "/api/node/1/Health"):
            status, reply = self.client.get(path, Host=f"attacker.example:{port}")
            self.assertEqual(status, 403, f"{path}: {reply}")
            self.assertEqual(self.client.send("GET", path, headers={"Host": "localhost:1"})[0], 200)
        self.assertEqual(self.client.get("/metrics", Host="node.example")[0], 200, "Prometheus uses any name")

    def test_a_change_needs_token_type_and_origin(self):
        body = {"session": 4711}
        path = "/api/EndSession"
        self.assertEqual(self.client.post(path, body)[0], 404, "no such session: the call reached the manager")
        self.assertEqual(self.client.post(path, body, token="")[0], 401)
        self.assertEqual(self.client.headers["WWW-Authenticate"], "Bearer")
        self.assertEqual(self.client.post(path, body, token=servers.TOKEN + "x")[0], 401)
        self.assertEqual(self.client.post(path, body, Origin="http://attacker.example")[0], 403)
        self.assertEqual(self.client.post(path, body, Host="attacker.example")[0], 403)
        self.assertEqual(self.client.send("POST", path, "session=1", {
            "Content-Type": "application/x-www-form-urlencoded", "Authorization": f"Bearer {servers.TOKEN}"})[0], 415)
        origin = f"http://{self.cluster.manager.admin}"
        self.assertEqual(self.client.post(path, body, Origin=origin)[0], 404)

    def test_a_body_that_is_no_request_is_refused(self):
        for body in ("", "no json", "[]", '{"session": -1}', '{"session": "x"}', '{"unknown": 1}', '{"session": 1',
                     "\0", '{"session":' + "[" * 10_000):
            status, reply = self.client.post("/api/EndSession", body)
            self.assertEqual(status, 400, f"{body[:40]}: {reply}")
        # The server closes the connection before it has read all of a body that is too long.
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            status, _ = self.client.post("/api/EndSession", '{"session": 1}' + " " * 70_000)
            self.assertEqual(status, 400, "longer than a body may be")

    def test_without_a_token_file_nothing_changes(self):
        with servers.programs.Server(MANAGER, "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0") as manager:
            client = servers.Client(manager.admin)
            self.assertFalse(client.get("/api/")[1]["changes_allowed"])
            status, reply = client.post("/api/EndSession", {"session": 1})
            self.assertEqual(status, 403)
            self.assertIn("--admin-token-file", reply)

    def test_a_wrong_token_file_ends_the_start(self):
        arguments = ["--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--admin-token-file"]
        short = pathlib.Path(self.cluster.folder.name) / "short"
        short.write_text("short\n")
        short.chmod(0o600)
        for file, says in ((short, "openssl rand"), ("/nothing", "cannot be read")):
            servers.programs.expect_refused(MANAGER, [*arguments, file], servers.programs.BAD_OPTION, says)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
