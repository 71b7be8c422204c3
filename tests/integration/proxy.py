"""proxy.py: a TCP or Unix-socket proxy in front of a server, whose faults a test switches on and off while it runs.

It is a thread with a loop of its own. Each direction of a connection is a task that reads a piece, applies the faults of
that direction, and writes. What is on its way when a fault is switched keeps the fault that it met.
"""

import asyncio
import random
import shutil
import threading
from dataclasses import dataclass

from harness import PATIENCE_S, short_directory


@dataclass
class Faults:
    """Of one direction. Everything off: bytes pass as they come."""

    delay_s: float = 0.0  # each piece is this late; pieces follow each other at once (a longer line, not a slower one)
    jitter_s: float = 0.0  # and up to this later
    bytes_per_s: int = 0  # 0: no bound
    piece: int = 65536  # bytes in one write; 1 cuts everything into single bytes
    stalled: bool = False  # nothing passes until it is False again
    cut_after: int = -1  # bytes of a connection after which both ends are closed; -1: never
    reset: bool = False  # that end is a RST
    half_close_after: int = -1  # bytes after which no more of this direction passes, and its end is closed
    duplicate: bool = False  # each piece twice
    corrupt_at: int = -1  # this byte of a connection is changed
    mark: bytes = b""  # what a piece has that stalls the other direction before it passes


class Proxy:
    """Listens on a Unix socket of its own, or on a free TCP port, and connects each client to `target`: "unix:PATH" or
    "HOST:PORT"."""

    def __init__(self, target, tcp=False, seed=1):
        self.target, self.tcp = target, tcp
        self.up, self.down = Faults(), Faults()  # to the server, from the server
        self.refuses = False  # new connections are closed at once
        self.n_connections = 0
        self._random = random.Random(seed)
        self._writers = set()
        self._directory = short_directory()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the proxy did not begin"

    @property
    def address(self):
        """In the form of store.redis.addresses."""
        return f"127.0.0.1:{self.port}" if self.tcp else f"unix:{self._directory}/proxy.sock"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _listen(self):
        if self.tcp:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
        else:
            self._server = await asyncio.start_unix_server(self._accept, f"{self._directory}/proxy.sock")

    async def _accept(self, client_in, client_out):
        self.n_connections += 1
        self._writers.add(client_out)
        server_out = None
        try:
            if self.refuses:
                return
            if self.target.startswith("unix:"):
                server_in, server_out = await asyncio.open_unix_connection(self.target[5:])
            else:
                host, _, port = self.target.rpartition(":")
                server_in, server_out = await asyncio.open_connection(host, int(port))
            self._writers.add(server_out)
            both = [asyncio.create_task(self._pass(client_in, server_out, self.up, self.down)),
                    asyncio.create_task(self._pass(server_in, client_out, self.down, self.up))]
            done, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if any(task.exception() or task.result() == "end" for task in done):
                for task in pending:
                    task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # no server is behind it, so the client sees the end; or the proxy is closed
        finally:
            for writer in (client_out, server_out):
                if writer is not None:
                    self._writers.discard(writer)
                    writer.close()

    async def _pass(self, reader, writer, faults, others):
        """"half": this direction has ended and the other goes on; "end": both do."""
        queue = asyncio.Queue()
        late = asyncio.create_task(self._write_late(queue, writer, faults))
        try:
            while True:
                read = asyncio.ensure_future(reader.read(65536))
                await asyncio.wait((read, late), return_when=asyncio.FIRST_COMPLETED)
                if late.done():  # it was cut, which the reader would see with its next bytes only
                    read.cancel()
                    break
                data = await read
                if faults.mark and faults.mark in data:
                    others.stalled = True
                due = self._loop.time() + faults.delay_s + self._random.uniform(0, faults.jitter_s)
                queue.put_nowait((due, data))
                if not data:
                    break
            return await late
        finally:
            late.cancel()

    async def _write_late(self, queue, writer, faults):
        n_passed = 0
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0, due - self._loop.time()))
            while faults.stalled:
                await asyncio.sleep(0.002)
            if not data:
                return "end"

            if 0 <= faults.corrupt_at - n_passed < len(data):
                at = faults.corrupt_at - n_passed
                data = data[:at] + bytes([data[at] ^ 0x15]) + data[at + 1:]
            if 0 <= faults.cut_after - n_passed < len(data):
                writer.write(data[:faults.cut_after - n_passed])
                await writer.drain()
                if faults.reset:
                    writer.transport.abort()
                return "end"
            if 0 <= faults.half_close_after - n_passed < len(data):
                writer.write(data[:faults.half_close_after - n_passed])
                writer.write_eof()
                return "half"

            n_passed += len(data)
            pieces = [data[i:i + faults.piece] for i in range(0, len(data), faults.piece)]
            for piece in pieces * (2 if faults.duplicate else 1):
                writer.write(piece)
                await writer.drain()
                if faults.bytes_per_s:
                    await asyncio.sleep(len(piece) / faults.bytes_per_s)
                elif faults.piece == 1:
                    await asyncio.sleep(0)

    def drop(self):
        """Reset every connection that is open now."""
        def abort():
            for writer in list(self._writers):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def close(self):
        def stop():
            self._server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.call_later(0.05, self._loop.stop)

        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(stop)
            self._thread.join(PATIENCE_S)
        shutil.rmtree(self._directory, ignore_errors=True)
