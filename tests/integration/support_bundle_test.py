"""`loam support-bundle` against real clusters: a complete one, and ones in which servers do not answer."""

import json
import os
import subprocess
import tarfile
import unittest

from cluster import DEADLINE_S, LOAM, Cluster, main

COMPLETE, FAILED, INCOMPLETE = 0, 1, 6
SERVER_FILES = {"health.json", "version.json", "options.json", "metrics.txt", "log.txt"}
CLUSTER_FILES = {f"cluster/{name}.json" for name in ("nodes", "statistics", "tables", "shards", "sessions", "transactions", "queries",
                                                     "slow")}
RECORD_TEXT = "a-text-that-only-a-record-has"


class SupportBundleTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster(2, durable=False)
        self.addCleanup(self.cluster.close)
        self.cluster.start()
        self.output = os.path.join(self.cluster.folder, "bundle.tar.gz")

    def admin(self, process):
        """Returns the address of a server's administration."""
        return process.wait_for_log(r"serving at .*, administration at (\S+)").group(1)

    def bundle(self, *arguments, stdout=subprocess.PIPE):
        return subprocess.run([LOAM, "support-bundle", "--admin", self.admin(self.cluster.manager), *arguments],
                              stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)

    def files(self):
        """Returns the files of the bundle by their names, without the folder that contains all of them."""
        with tarfile.open(self.output) as archive:
            found = {member.name: archive.extractfile(member).read().decode() for member in archive}
        folders = {name.split("/")[0] for name in found}
        self.assertEqual(len(folders), 1, found.keys())
        return {name.split("/", 1)[1]: content for name, content in found.items()}

    def collected(self, code, *arguments):
        """Makes a bundle, and returns its files and its manifest."""
        done = self.bundle("--output", self.output, "--json", *arguments)
        self.assertEqual(done.returncode, code, f"{done.stdout} {done.stderr}")
        self.assertEqual(done.stderr, "")
        printed = json.loads(done.stdout)
        files = self.files()
        manifest = json.loads(files["manifest.json"])
        self.assertEqual({**printed, **manifest}, printed, "--json prints the manifest")
        self.assertEqual(printed["output_bytes"], os.path.getsize(self.output))
        self.assertEqual({one["path"]: one["bytes"] for one in manifest["files"]},
                         {name: len(content.encode()) for name, content in files.items() if name != "manifest.json"})
        self.assertEqual(manifest["complete"], code == COMPLETE)
        return files, manifest

    def assert_missing(self, manifest, path, says):
        reasons = [one["reason"] for one in manifest["not_collected"] if one["path"] == path]
        self.assertEqual(len(reasons), 1, manifest["not_collected"])
        self.assertIn(says, reasons[0])

    def test_a_cluster_is_collected_without_its_records(self):
        self.cluster.loam("table", "create", "things", "--field", "name:text")
        self.cluster.loam("put", "things", "1", f"name={RECORD_TEXT}")
        files, manifest = self.collected(COMPLETE)
        expected = {f"{server}/{file}" for server in ("manager", "nodes/1", "nodes/2") for file in SERVER_FILES}
        self.assertEqual(set(files), expected | CLUSTER_FILES | {"host/version.json", "host/doctor.json", "manifest.json"})
        self.assertEqual(manifest["not_collected"], [])
        options = json.loads(files["nodes/1/options.json"])
        self.assertEqual(options["program"], "loam-storage-node")
        self.assertEqual(options["options"]["memory"], "64MiB")
        self.assertRegex(options["build_id"], "^[0-9a-f]{40}$")
        self.assertEqual(json.loads(files["manager/options.json"])["options"]["nodes"], 2)
        self.assertIn("[program.serving] serving at tcp://", files["nodes/2/log.txt"])
        self.assertIn("[node.registered] storage node 2 at ", files["manager/log.txt"])
        self.assertIn("# TYPE ", files["manager/metrics.txt"])
        tables = {table["name"]: table for table in json.loads(files["cluster/tables.json"])["tables"]}
        self.assertEqual(tables["things"]["fields"][0]["name"], "name")
        self.assertEqual(len(json.loads(files["cluster/nodes.json"])), 2)
        for line in files["host/doctor.json"].splitlines():
            self.assertIn(json.loads(line)["result"], ("ok", "warning", "error"))
        for name, content in files.items():
            self.assertNotIn(RECORD_TEXT, content, name)

    def test_progress_and_result_are_for_people(self):
        done = self.bundle("--output", self.output, "--log-lines", "1")
        self.assertEqual(done.returncode, COMPLETE, done.stderr)
        self.assertIn("asking the commit manager at ", done.stderr)
        self.assertIn("asking storage node 2 at ", done.stderr)
        self.assertIn(f"{self.output}: 25 files, ", done.stdout)
        for name, content in self.files().items():
            if name.endswith("log.txt"):
                self.assertEqual(content.count("\n"), 1, name)

    def test_a_dead_storage_node_is_named(self):
        dead = self.admin(self.cluster.nodes[1])
        self.cluster.nodes[1].kill()
        files, manifest = self.collected(INCOMPLETE)
        # The storage nodes have their numbers in the order of their registration.
        number = next(node["id"] for node in json.loads(files["cluster/nodes.json"]) if node["admin_address"] == dead)
        self.assert_missing(manifest, f"nodes/{number}/", "does not answer")
        self.assertTrue({f"nodes/{3 - number}/{file}" for file in SERVER_FILES} | CLUSTER_FILES <= set(files))

    def test_a_dead_commit_manager_is_named_and_its_nodes_can_be_given(self):
        nodes = [self.admin(node) for node in self.cluster.nodes]
        self.cluster.manager.kill()
        files, manifest = self.collected(INCOMPLETE, "--node", nodes[0], "--node", nodes[1])
        self.assert_missing(manifest, "manager/", "does not answer")
        self.assert_missing(manifest, "cluster/", "does not answer")
        for address in nodes:
            folder = f"nodes/{address.replace(':', '_')}"
            self.assertTrue({f"{folder}/{file}" for file in SERVER_FILES} <= set(files), files.keys())

    def test_lost_output_is_an_error(self):
        for output, says in (("/dev/full", "No space left on device"),
                             (f"{self.cluster.folder}/missing/bundle.tar.gz", "No such file or directory")):
            done = self.bundle("--output", output)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertIn(output, done.stderr)
        self.assertFalse(os.path.exists(f"{self.cluster.folder}/missing"))
        for option in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                done = self.bundle("--output", self.output, *option, stdout=full)
            self.assertEqual(done.returncode, FAILED, done.stderr)
            self.assertIn("the standard output cannot be written", done.stderr)


if __name__ == "__main__":
    main()
