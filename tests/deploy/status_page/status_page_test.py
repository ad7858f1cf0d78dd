"""Tests the status page in a headless Chromium against a real cluster.

Pictures of the page are written to build/status_page, beside the folder of the preset's programs."""

import contextlib
import json
import pathlib
import subprocess
import sys
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import chromium  # noqa: E402
import servers  # noqa: E402

MANAGER, NODE, LOAM, WORKLOAD = sys.argv[1:5]
PICTURES = pathlib.Path(MANAGER).resolve().parents[1] / "status_page"
TABLES = 1_000
MANY_TABLES = 10_000
OTHER_TABLES = 3  # a system table, the scanned one, and the accounts of the client
# Upper bound on the elements of the page with any number of tables: a list shows 25 rows.
MAX_ELEMENTS = 2_500
# Upper bound on the requests until the page is ready: its files, and two rounds of the API with one storage node.
MAX_REQUESTS = 40
ROWS, ROW_BYTES = 12, 100_000  # more chunks than a scan gets whose client reads none
READY = "Number(document.documentElement.dataset.polls ?? 0) > 0"


def polls(page):
    return page.run("Number(document.documentElement.dataset.polls ?? 0)")


def next_poll(page):
    """Waits until the page has fetched everything once more."""
    page.wait(f"Number(document.documentElement.dataset.polls ?? 0) > {polls(page)}")


class StatusPageTest(unittest.TestCase):
    """The tests share one cluster, whose number of tables rises."""

    @classmethod
    def setUpClass(cls):
        PICTURES.mkdir(exist_ok=True)
        cls.cluster = servers.Cluster(MANAGER, NODE, memory="1GiB")
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.cluster.create_tables(f"table_{number:05}" for number in range(TABLES))
        cls.browser = chromium.Chromium()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.manager = f"http://{cls.cluster.manager.admin}/"
        cls.node = f"http://{cls.cluster.node.admin}/"

    def open(self, url, **options):
        page = self.browser.open(**options)
        page.goto(url)
        page.wait(READY)
        return page

    def check(self, page):
        """Checks what must hold at any time."""
        self.assertEqual(page.complaints(), [])
        self.assertEqual(page.run((HERE / "accessibility.js").read_text()), [])
        self.assertLessEqual(page.run("document.querySelectorAll('*').length"), MAX_ELEMENTS)
        self.assertLessEqual(page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0,
                             "the page is wider than the window")

    def test_1_ready_with_a_thousand_tables(self):
        page = self.browser.open()
        begin = time.monotonic()
        page.goto(self.manager)
        page.wait(READY)
        print(f"page.ready_ms {1000 * (time.monotonic() - begin):.0f} with {TABLES} tables")
        self.assertIn(f"1 to 25 of {TABLES + 1:,}", page.run("document.querySelector('#tables [role=status]').textContent"))
        self.assertLessEqual(len(page.requests()), MAX_REQUESTS)
        outside = [url for url in page.requests() if not url.startswith(self.manager)]
        self.assertEqual(outside, [], "the page needs no other server")
        self.check(page)

    def test_2_looks(self):
        for name, url in (("manager", self.manager), ("node", self.node)):
            for look, options in (("light", {}), ("dark", {"dark": True}), ("phone", {"width": 390, "height": 844}),
                                  ("phone_dark", {"width": 390, "height": 844, "dark": True})):
                with self.subTest(name=name, look=look):
                    page = self.open(url, **options)
                    next_poll(page)
                    self.check(page)
                    page.screenshot(PICTURES / f"{name}_{look}.png")

    def test_3_sections_show_the_cluster(self):
        page = self.open(self.manager)
        text = page.run("document.body.innerText")
        for section in ("Storage nodes", "Shards", "Memory", "Tables", "Sessions", "Oldest transactions", "Running queries",
                        "Latencies", "Last minutes"):
            self.assertIn(section, text)
        self.assertEqual(page.run("document.getElementById('state').textContent"), "serving")
        self.assertIn("1 of 1", text)
        self.assertIn("1,024 virtual shards", text)
        page = self.open(self.node)
        self.assertEqual(page.run("document.getElementById('title').textContent"), "Loam storage node 1")
        self.assertIn("table_", page.run("document.getElementById('tables').innerText"))

    def test_4_keyboard_filters_sorts_and_turns_pages(self):
        page = self.open(self.manager)
        first = "document.querySelector('#tables tbody th').textContent"
        shown = "document.querySelectorAll('#tables tbody tr').length"
        page.run("document.querySelector('#tables thead button').focus()")
        page.press("Enter", 13, "\r")
        page.wait(f"{first} !== 'table_00999'")
        self.assertEqual(page.run("document.querySelector('#tables th[aria-sort]').textContent"), "Name")
        page.run("document.querySelector('#tables .tools button:last-child').focus()")
        page.press("Enter", 13, "\r")
        page.wait("document.querySelector('#tables [role=status]').textContent.startsWith('26 to 50')")
        next_poll(page)
        self.assertEqual(page.run("document.activeElement.textContent"), "Next", "an update keeps the focus")
        page.run("document.querySelector('#tables input').focus()")
        page.call("Input.insertText", text="00777")
        page.wait(f"{shown} === 1 && {first} === 'table_00777'")
        page.call("Input.insertText", text="x")
        page.wait("document.querySelector('#tables .empty')?.textContent === 'Nothing has this name.'")
        self.check(page)

    def loam(self, *arguments, **options):
        subprocess.run([LOAM, *arguments, "--connect", self.cluster.manager.address], check=True, capture_output=True,
                       text=True, timeout=servers.DEADLINE_S, **options)

    @contextlib.contextmanager
    def client_with_a_query(self):
        """Yields a client that has read nothing of its scan of a table yet, as a function that sends it a command."""
        self.loam("table", "create", "big", "--field", "value:text")
        self.loam("import", "big", "-", "--key", "key",
                  input="key,value\n" + "".join(f"{key},{'x' * ROW_BYTES}\n" for key in range(ROWS)))
        command = [WORKLOAD, "--connect", self.cluster.manager.address, "--name", "watched", "--history",
                   f"{self.cluster.folder.name}/history", "console"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            def send(line):
                client.stdin.write(line + "\n")
                client.stdin.flush()
                return json.loads(client.stdout.readline())

            json.loads(client.stdout.readline())  # its session
            self.assertTrue(send("stream big")["ok"])
            yield send
            client.stdin.close()

    def test_5_an_operator_finds_a_query_and_ends_its_session(self):
        with self.client_with_a_query() as client:
            page = self.open(self.manager)
            page.wait("document.getElementById('queries').innerText.includes('waiting for client')")
            query = page.run("document.querySelector('#queries tbody tr').innerText")
            self.assertIn("big", query)
            self.assertRegex(query, r"127\.0\.0\.1:\d+")
            latencies = page.run("document.getElementById('latencies').innerText")
            self.assertRegex(latencies, r"begin\s+commit manager\s+[1-9]")
            self.assertRegex(latencies, r"write\s+node 1\s+[1-9]")

            row = "[...document.querySelectorAll('#sessions-list tbody tr')].find((row) => row.innerText.includes('watched'))"
            page.run(f"{row}.querySelector('button').click()")
            self.assertIn("watched", page.run("document.getElementById('confirm-text').textContent"))
            self.check(page)
            page.run("document.getElementById('token').focus()")
            page.call("Input.insertText", text="wrong")
            page.press("Enter", 13, "\r")
            page.wait("!document.getElementById('confirm-error').hidden")
            self.assertTrue(page.run("document.getElementById('confirm').open"))
            self.assertTrue(client("stream big")["ok"], "a wrong token changes nothing")
            page.run("document.getElementById('token').select()")
            page.call("Input.insertText", text=servers.TOKEN)
            page.press("Enter", 13, "\r")
            page.wait("!document.getElementById('confirm').open")
            page.wait(f"!({row})?.querySelector('button:not([hidden])')")
            lost = client("drain")
            self.assertEqual((lost["code"], lost["rows"]), ("kUnavailable", 0), lost)
            self.assertIn("ended", lost["message"])
            page.wait("document.getElementById('queries').innerText.includes('No query runs.')")
            # Chromium reports the status 401 of the wrong token.
            self.assertEqual([one for one in page.complaints() if "401" not in one.get("text", "")], [])

    def test_6_latency_charts_follow_the_requests(self):
        def shows(chart, value):
            text = f"^Latency of {chart}half below {value}.*99 % below {value}.*99.9 % below {value}"
            return f"[...document.querySelectorAll('figure')].some((one) => /{text}/.test(one.textContent))"

        workload = [WORKLOAD, "--connect", self.cluster.manager.address]
        subprocess.run([*workload, "console"], input=b"load 100 1000\n", stdout=subprocess.DEVNULL, check=True,
                       timeout=servers.DEADLINE_S)
        with subprocess.Popen([*workload, "transfers", "--seconds", str(servers.DEADLINE_S)],
                              stdout=subprocess.DEVNULL) as client:
            for name, url, charts in (("manager", self.manager, ("reads", "writes", "begins", "commits and aborts")),
                                      ("node", self.node, ("reads", "writes"))):
                page = self.open(url)
                for chart in charts:
                    page.wait(shows(chart, "[1-9]"))
                self.check(page)
                page.screenshot(PICTURES / f"{name}_workload.png")
            client.kill()
        page.wait(shows("writes", "–"))

    def test_7_ten_thousand_tables(self):
        self.cluster.create_tables(f"table_{number:05}" for number in range(TABLES, MANY_TABLES))
        page = self.open(self.manager)
        self.assertIn(f"1 to 25 of {MANY_TABLES + OTHER_TABLES:,}",
                      page.run("document.querySelector('#tables [role=status]').textContent"))
        page.run("document.querySelector('#tables input').focus()")
        page.call("Input.insertText", text="09999")
        page.wait("document.querySelectorAll('#tables tbody tr').length === 1")
        self.assertEqual(page.run("document.querySelector('#tables tbody th').textContent"), "table_09999")
        self.check(page)

    def test_8_says_that_a_server_does_not_answer(self):
        page = self.open(self.manager)
        self.cluster.node.process.kill()
        page.wait("document.getElementById('nodes').innerText.includes('unreachable')")
        self.cluster.manager.process.kill()
        page.wait("!document.getElementById('unreachable').hidden")
        self.assertEqual(page.run("document.getElementById('state').textContent"), "no answer")
        self.assertEqual(page.run((HERE / "accessibility.js").read_text()), [])
        page.screenshot(PICTURES / "manager_unreachable.png")


class FullMemoryTest(unittest.TestCase):
    """A storage node whose memory has no room for further writes. The reserves for removes and undo stay free."""

    def test_warns_when_writes_are_refused(self):
        with servers.Cluster(MANAGER, NODE, memory="32MiB") as cluster, chromium.Chromium() as browser:
            def loam(*arguments, **options):
                return subprocess.run([LOAM, *arguments, "--connect", cluster.manager.address], check=False, text=True,
                                      capture_output=True, timeout=servers.DEADLINE_S, **options)

            created = loam("table", "create", "big", "--field", "value:text")
            self.assertEqual(created.returncode, 0, created.stderr)
            for url in (f"http://{cluster.manager.admin}/", f"http://{cluster.node.admin}/"):
                page = browser.open()
                page.goto(url)
                page.wait(READY)
                self.assertTrue(page.run("document.getElementById('advice').hidden"), url)
            rows = "".join(f"{key},{'x' * ROW_BYTES}\n" for key in range(400))
            done = loam("import", "big", "-", "--key", "key", input="key,value\n" + rows)
            self.assertNotEqual(done.returncode, 0, "the memory has room for all rows")
            for url in (f"http://{cluster.manager.admin}/", f"http://{cluster.node.admin}/"):
                page = browser.open()
                page.goto(url)
                page.wait("document.getElementById('advice').innerText.includes('nearly full')")
                page.wait("document.querySelector('#memory .bad') !== null")
                self.assertEqual(page.complaints(), [], url)


if __name__ == "__main__":
    if why := chromium.missing():
        print(f"SKIPPED: {why}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
