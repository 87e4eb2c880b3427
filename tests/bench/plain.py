"""Plain processes to compare ours with: they do the least that the same task asks of any program."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from services.console.uevents import SOCKET, Sender

# Takes the datagram of a uevent and puts a file in its place by a rename, content and path fixed before.
_WRITER = """
import os, socket, sys
listens, path, content = sys.argv[1:4]
taker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
taker.bind(listens)
print("listens", flush=True)
while True:
    taker.recv(16384)
    with open(path + ".new", "w") as file:
        file.write(content)
    os.rename(path + ".new", path)
"""
# Takes as many datagrams as it is told to, and says how many nanoseconds of a processor that took.
_TAKER = """
import socket, sys, time
taker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
taker.bind(sys.argv[1])
print("listens", flush=True)
before = time.process_time_ns()
for _ in range(int(sys.argv[2])):
    taker.recv(16384)
print(time.process_time_ns() - before, flush=True)
"""
# Sends an apply request with a fixed body at each message of the bus; a slice of its own, named "plain".
_POSTER = """
import http.client, sys
import zmq
bus, topic, host, path, body = sys.argv[1:6]
taker = zmq.Context().socket(zmq.SUB)
taker.setsockopt(zmq.SUBSCRIBE, topic.encode())
taker.connect(bus)
server = http.client.HTTPConnection(host)
taker.recv_multipart()  # what is repeated for its subscription
print("listens", flush=True)
while True:
    taker.recv_multipart()
    server.request("PATCH", path, body, {"Content-Type": "application/apply-patch+yaml"})
    server.getresponse().read()
"""
# Imports one module and waits for ever.
_SLEEPER = """
import importlib, select, sys
importlib.import_module(sys.argv[1])
print("waits", flush=True)
select.poll().poll()
"""
# Wakes ten times a second and does nothing: on a virtual machine at rest the waking itself has a price.
WAKER = """
import time
print("wakes", flush=True)
while True:
    time.sleep(0.1)
"""
# Serves nothing on two unix sockets, as many as the plugin has.
_SERVER = """
import asyncio, sys
import grpc.aio

async def main():
    servers = [grpc.aio.server() for _ in range(2)]
    for number, server in enumerate(servers):
        server.add_insecure_port(f"unix:{sys.argv[1]}/{number}")
        await server.start()
    print("listens", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python with these arguments, from its first line of output on until it is killed here."""
    with subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            line(process)
            yield process
        finally:
            process.kill()


def line(process: "subprocess.Popen[str]") -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    found = process.stdout.readline()
    assert found, "the plain process ended"
    return found


@contextmanager
def writer(path: Path, content: bytes) -> Iterator[Sender]:
    """A process that writes `content` to `path` at each event that is sent to it."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running("-c", _WRITER, f"{folder}/{SOCKET}", str(path), content.decode()),
    ):
        sender = Sender(Path(folder))
        yield sender
        sender.close()


@contextmanager
def taker(count: int) -> Iterator[tuple[Sender, "subprocess.Popen[str]"]]:
    """A process that takes `count` events and then prints the nanoseconds of a processor they cost."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running("-c", _TAKER, f"{folder}/{SOCKET}", str(count)) as process,
    ):
        sender = Sender(Path(folder))
        yield sender, process
        sender.close()


@contextmanager
def poster(bus: str, topic: str, url: str, body: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that applies `body` at `url` whenever the topic comes on the bus at that address."""
    parts = urlsplit(url)
    with running("-c", _POSTER, bus, topic, parts.netloc, f"{parts.path}?{parts.query}", body) as process:
        yield process


@contextmanager
def sleeper(module: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that has imported `module` and waits in poll."""
    with running("-c", _SLEEPER, module) as process:
        yield process


@contextmanager
def idle_server(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process with two gRPC servers below `folder` that nobody calls."""
    with running("-c", _SERVER, str(folder)) as process:
        yield process
