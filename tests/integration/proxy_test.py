"""Tests proxy.py between a plain socket and a server that records the bytes that it receives."""

import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from proxy import Proxy  # noqa: E402

DEADLINE_S = 300


class RecordingServer:
    """Accepts connections, records the bytes and the end of each, and echoes every chunk."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.got = []  # received bytes of each connection
        self.ended = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            self.got.append(b"")
            self.ended.append(False)
            threading.Thread(target=self.keep, args=(stream, len(self.got) - 1), daemon=True).start()

    def keep(self, stream, place):
        try:
            while data := stream.recv(1 << 16):
                self.got[place] += data
                stream.sendall(data)
        except OSError:
            pass
        self.ended[place] = True


class ProxyTest(unittest.TestCase):
    def setUp(self):
        self.keeper = RecordingServer()
        self.addCleanup(self.keeper.listener.close)
        self.proxy = Proxy(self.keeper.address)
        self.addCleanup(self.proxy.close)

    def connect(self):
        host, _, port = self.proxy.address.removeprefix("tcp://").rpartition(":")
        stream = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
        self.addCleanup(stream.close)
        return stream

    def eventually(self, condition):
        end = time.monotonic() + DEADLINE_S
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)  # poll interval

    def test_delivers_both_directions_in_order(self):
        stream = self.connect()
        sent = os.urandom(300_000)
        threading.Thread(target=stream.sendall, args=(sent,), daemon=True).start()
        back = b""
        while len(back) < len(sent):
            back += stream.recv(1 << 16)
        self.assertEqual(back, sent)

    def test_forwards_the_end_of_a_connection(self):
        stream = self.connect()
        stream.sendall(b"last words")
        self.assertEqual(stream.recv(100), b"last words")
        stream.close()
        self.eventually(lambda: self.keeper.ended == [True])

    def test_delays_bytes(self):
        stream = self.connect()
        self.proxy.delay(0.05)
        started = time.monotonic()
        stream.sendall(b"x")
        self.assertEqual(stream.recv(1), b"x")
        self.assertGreaterEqual(time.monotonic() - started, 0.1)

    def test_release_delivers_held_bytes(self):
        stream = self.connect()
        self.proxy.hold(down=True)
        stream.sendall(b"question")
        self.eventually(lambda: self.keeper.got == [b"question"] and self.proxy.waiting("down") == 8)
        self.proxy.release()
        self.assertEqual(stream.recv(100), b"question")

    def test_cut_resets_both_sides_and_drops_held_bytes(self):
        stream = self.connect()
        stream.sendall(b"a")
        self.assertEqual(stream.recv(1), b"a")
        self.proxy.hold(up=True)
        stream.sendall(b"b")
        self.eventually(lambda: self.proxy.waiting("up") == 1)
        self.assertEqual(self.proxy.cut(), 1)
        with self.assertRaises(ConnectionResetError):
            stream.recv(1)
        self.eventually(lambda: self.keeper.ended == [True])
        self.assertEqual(self.keeper.got, [b"a"])

    def test_late_bytes_reach_the_server_after_the_client_was_reset(self):
        stream = self.connect()
        self.eventually(lambda: self.keeper.got == [b""])  # the server has accepted the proxy's connection
        self.proxy.hold(up=True)
        stream.sendall(b"tail")
        self.eventually(lambda: self.proxy.waiting("up") == 4)
        self.proxy.cut(late_s=2)
        with self.assertRaises(ConnectionResetError):
            stream.recv(1)
        self.assertEqual(self.keeper.got, [b""])
        self.eventually(lambda: self.keeper.got == [b"tail"] and self.keeper.ended == [True])

    def test_refused_connections_are_reset(self):
        self.proxy.refuse()
        with self.assertRaises(OSError):
            stream = self.connect()
            if not stream.recv(1):
                raise ConnectionResetError
        self.proxy.refuse(False)
        stream = self.connect()
        stream.sendall(b"again")
        self.assertEqual(stream.recv(5), b"again")
        self.assertEqual(self.proxy.accepted, 2)


if __name__ == "__main__":
    unittest.main()
