"""The machine's limits, measured in the same run as the programs that are compared with them:
memory bandwidth by plain copies, and the kernel's loopback by plain sockets. A limit is the best of
many short windows, so that other load on the machine lowers it as little as possible."""
import ctypes
import mmap
import os
import socket
import struct
import threading
import time

MIN_COPY, MAX_COPY = 64 << 10, 256 << 20  # sizes of copies whose speed is measured
COPY_SECONDS = 0.15                          # for each of them
COPY_BLOCK = 2 << 20                         # of it timed at once: rarely interrupted
STREAM_BYTES = 512 << 20
WINDOW_BYTES = 32 << 20  # more than the kernel's socket buffers hold, or their emptying is measured
PING_PONGS = 2000
PATIENCE_S = 120


def _available_memory():
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 1 << 30


def _child(work, index, gate_read, answer_write):
    """Measures and leaves; nothing of the parent's runs here."""
    code = 1
    try:
        os.read(gate_read, 1)  # returns when the parent closes its end
        values = work(index)
        os.write(answer_write, struct.pack(f"{len(values)}d", *values))
        code = 0
    finally:
        os._exit(code)


def _in_children(count, work):
    """Runs work(index) in `count` processes that begin together; the tuples of floats that it
    returned, in order."""
    answers, children = [], []
    gate_read, gate_write = os.pipe()
    for index in range(count):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(gate_write)
            _child(work, index, gate_read, write)
        os.close(write)
        answers.append(read)
        children.append(child)
    os.close(gate_read)
    os.close(gate_write)
    packed = [os.read(read, 64) for read in answers]
    for read, child in zip(answers, children):
        os.close(read)
        os.waitpid(child, 0)
    if not all(packed):
        raise RuntimeError("a measuring process failed")
    return [struct.unpack(f"{len(text) // 8}d", text) for text in packed]


def memory_bandwidth(processes, size):
    """Bytes read plus bytes written in a second, by copies of `size` bytes in all processes,
    each again and again from one place to another: what fits a cache is copied in it."""
    processes = max(1, min(processes, os.cpu_count() or 1))
    size = min(size, MAX_COPY, _available_memory() // (8 * processes))

    def copy(_):
        source, target = mmap.mmap(-1, size), mmap.mmap(-1, size)
        to, origin = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (target, source))
        ctypes.memset(to, 1, size)
        ctypes.memset(origin, 2, size)
        block = min(size, COPY_BLOCK)
        turns = max(1, (1 << 20) // block)  # clock readings and calls cost little beside 1 MiB
        best, end, at = float("inf"), time.monotonic() + COPY_SECONDS, 0
        while time.monotonic() < end or at != 0:
            began = time.monotonic()
            for _ in range(turns):
                ctypes.memmove(to + at, origin + at, block)
            best = min(best, time.monotonic() - began)
            at = at + block if at + 2 * block <= size else 0
        return (2 * block * turns / best,)

    return sum(bandwidth for bandwidth, in _in_children(processes, copy))


def _receive(connection, total, buffer):
    while total > 0:
        got = connection.recv_into(buffer, min(total, len(buffer)))
        if got == 0:
            raise RuntimeError("the other end closed")
        total -= got


def _exchange(connection, index):
    """(bytes a second that arrive here while as many leave, seconds of one 8-byte way)."""
    small, large = bytearray(8), bytearray(1 << 20)
    way = float("inf")
    for _ in range(PING_PONGS):
        began = time.monotonic()
        if index == 0:
            connection.sendall(small)
        _receive(connection, 8, small)
        if index == 1:
            connection.sendall(small)
        else:
            way = min(way, (time.monotonic() - began) / 2)
    sender = threading.Thread(
        target=lambda: [connection.sendall(large) for _ in range(STREAM_BYTES // len(large))])
    sender.start()
    best = float("inf")
    for _ in range(STREAM_BYTES // WINDOW_BYTES):
        began = time.monotonic()
        _receive(connection, WINDOW_BYTES, large)
        best = min(best, time.monotonic() - began)
    sender.join()
    return WINDOW_BYTES / best, way


def loopback():
    """(bytes a second, both directions of one connection together; seconds of one 8-byte way)."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen(1)
        door.settimeout(PATIENCE_S)
        address = door.getsockname()

        def end(index):
            if index == 0:
                connection = door.accept()[0]
            else:
                connection = socket.create_connection(address, timeout=PATIENCE_S)
            connection.settimeout(PATIENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _exchange(connection, index)

        streams, ways = zip(*_in_children(2, end))
    return sum(streams), min(ways)


class Limits:
    """The least time that an all-reduce of `size` bytes on `ranks` of this host can take."""

    def __init__(self, ranks, transport):
        self.ranks, self.transport = ranks, transport
        self.memory = {}
        if transport == "tcp":
            self.stream, self.way_s = loopback()

    def _memory(self, size):
        size = max(size, MIN_COPY)
        if size not in self.memory:
            self.memory[size] = memory_bandwidth(self.ranks, size)
        return self.memory[size]

    def microseconds(self, size):
        if self.transport == "tcp":
            # Each rank sends 2 (ranks - 1) / ranks of the data, whatever the algorithm.
            return max(self.way_s, 2 * (self.ranks - 1) * size / self.stream) * 1e6
        # Each rank reads its input and writes its output once: 2 * ranks * size bytes.
        return 2 * self.ranks * size / self._memory(size) * 1e6

    def text(self):
        if self.transport == "tcp":
            return (f"loopback {self.stream / 1e9:.2f} GB/s both ways together, "
                    f"{self.way_s * 1e6:.1f} us one way")
        return f"memory {self._memory(MAX_COPY) / 1e9:.1f} GB/s (copies, read + written)"
