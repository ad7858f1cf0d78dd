"""A TCP proxy that treats messages as a stream of bytes. It delays and holds bytes, resets connections, and delivers
the last bytes of a reset connection late.

    with Proxy(cluster.address) as proxy:
        client = cluster.client("a", address=proxy.address)
        proxy.hold(down=True)       # replies wait in the proxy
        ...
        proxy.cut(late_s=0.1)       # the client sees a reset; the server gets the client's last bytes a little later
        proxy.release()

"up" is the direction from the client to the server, "down" the direction from the server to the client.
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close sends a reset


class Direction:
    """The bytes in one direction of one connection. They are delivered in order, and not before their delay has
    passed."""

    def __init__(self, proxy, direction, writer):
        self.proxy, self.direction, self.writer = proxy, direction, writer
        self.waiting = []  # (due, bytes)
        self.changed = asyncio.Event()
        self.ended = False  # the sender has ended its stream

    def put(self, data):
        self.waiting.append((self.proxy.loop.time() + self.proxy.delay_s, data))
        self.changed.set()

    def end(self):
        self.ended = True
        self.changed.set()

    async def deliver(self):
        while True:
            while self.waiting and not self.proxy.held[self.direction]:
                due, data = self.waiting[0]
                wait = due - self.proxy.loop.time()
                if wait > 0:
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self.changed.wait(), wait)
                    self.changed.clear()
                    continue
                self.waiting.pop(0)
                self.writer.write(data)
                await self.writer.drain()
            if self.ended and not self.waiting:
                self.writer.close()
                return
            await self.changed.wait()
            self.changed.clear()


class ProxiedConnection:
    """The connection of one client to the proxy, and the connection of the proxy to the server for this client."""

    def __init__(self, proxy, client_reader, client_writer, server_reader, server_writer):
        self.proxy = proxy
        self.client_writer, self.server_writer = client_writer, server_writer
        self.was_cut = False
        self.up, self.down = Direction(proxy, "up", server_writer), Direction(proxy, "down", client_writer)
        self.tasks = [asyncio.ensure_future(work) for work in (
            self.read(client_reader, self.up), self.read(server_reader, self.down), self.up.deliver(),
            self.down.deliver())]

    @staticmethod
    async def read(reader, direction):
        try:
            while data := await reader.read(1 << 16):
                direction.put(data)
        except OSError:
            pass
        direction.end()

    async def run(self):
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.was_cut:
            return
        for writer in (self.client_writer, self.server_writer):
            writer.close()

    def cut(self, late_s):
        """Resets the client's connection at once. Resets the server's connection too, unless `late_s` is given: then
        the server receives the last bytes after this time."""
        self.was_cut = True
        for task in self.tasks:
            task.cancel()
        reset(self.client_writer)
        if late_s is None:
            reset(self.server_writer)
        else:
            self.proxy.loop.call_later(late_s, self.deliver_late)

    def deliver_late(self):
        for _, data in self.up.waiting:
            self.server_writer.write(data)
        self.proxy.loop.call_later(0.02, self.server_writer.close)  # the server reads the bytes before it sees the end


def reset(writer):
    stream = writer.get_extra_info("socket")
    if stream is not None and stream.fileno() >= 0:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


class Proxy:
    """Listens on a free port of loopback and connects to `target` ("tcp://host:port") for each client. The proxy has a
    thread of its own. The test's thread calls all methods."""

    def __init__(self, target):
        self.target = target
        self.loop = asyncio.new_event_loop()
        self.held = {"up": False, "down": False}
        self.delay_s = 0.0
        self.refusing = False
        self.pairs = set()
        self.accepted = 0
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.address = self.call(self.listen)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, function, *arguments):
        """Runs the coroutine function in the proxy's thread, and returns its result."""
        return asyncio.run_coroutine_threadsafe(function(*arguments), self.loop).result(30)

    async def listen(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def accept(self, client_reader, client_writer):
        self.accepted += 1
        if self.refusing:
            reset(client_writer)
            return
        host, _, port = self.target.removeprefix("tcp://").rpartition(":")
        try:
            server_reader, server_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            reset(client_writer)
            return
        for writer in (client_writer, server_writer):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pair = ProxiedConnection(self, client_reader, client_writer, server_reader, server_writer)
        self.pairs.add(pair)
        await pair.run()
        self.pairs.discard(pair)

    def delay(self, seconds):
        """From now on delays every byte by this time."""
        self.delay_s = seconds

    def refuse(self, refusing=True):
        """From now on resets new connections at once. False: accepts them again."""
        self.refusing = refusing

    def hold(self, up=False, down=False):
        """From now on delivers nothing in these directions, until release()."""
        async def change():
            self.held.update({"up": up or self.held["up"], "down": down or self.held["down"]})

        self.call(change)

    def release(self):
        """Delivers the held bytes and stops holding."""
        async def change():
            self.held = {"up": False, "down": False}
            for pair in self.pairs:
                pair.up.changed.set()
                pair.down.changed.set()

        self.call(change)

    def waiting(self, direction):
        """Returns the number of bytes that wait in the proxy in this direction."""
        async def count():
            return sum(len(data) for pair in self.pairs for _, data in getattr(pair, direction).waiting)

        return self.call(count)

    def cut(self, late_s=None):
        """Resets every connection. Returns their number. With `late_s`, the server receives the bytes that the clients
        sent before the reset after this time, and then the end of the stream."""
        async def change():
            pairs, self.pairs = self.pairs, set()
            for pair in pairs:
                pair.cut(late_s)
            return len(pairs)

        return self.call(change)

    def close(self):
        async def finish():
            self.server.close()
            for pair in self.pairs:
                pair.cut(None)

        self.call(finish)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class NetworkFaultInjector:
    """Cuts, holds and delays connections of the proxies at random until stop()."""

    def __init__(self, proxies, seed, pause_s=(0.02, 0.15)):
        self.proxies, self.random, self.pause_s = proxies, random.Random(seed), pause_s
        self.cuts = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.over.wait(self.random.uniform(*self.pause_s)):
            proxy = self.random.choice(self.proxies)
            proxy.delay(self.random.choice([0, 0, 0, 0.001, 0.005]))
            held = self.random.choice([{}, {"up": True}, {"down": True}, {"up": True, "down": True}])
            proxy.hold(**held)
            if self.over.wait(self.random.uniform(0.001, 0.03)):
                break
            self.cuts += proxy.cut(late_s=self.random.choice([None, 0.001, 0.03, 0.1]))
            proxy.release()

    def stop(self):
        self.over.set()
        self.thread.join()
        for proxy in self.proxies:
            proxy.delay(0)
            proxy.release()
