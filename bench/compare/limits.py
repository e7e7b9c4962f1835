"""What the machine allows, measured in the same run as the programs that are compared with it:
memory bandwidth by plain copies, and the kernel's loopback by plain sockets."""
import ctypes
import mmap
import os
import socket
import struct
import threading
import time

COPY_BYTES = 256 << 20
COPY_TURNS = 4
STREAM_BYTES = 256 << 20
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


def memory_bandwidth(processes):
    """Bytes read plus bytes written in a second, by copies in all processes at once."""
    processes = max(1, min(processes, os.cpu_count() or 1))
    size = min(COPY_BYTES, _available_memory() // (8 * processes))

    def copy(_):
        source, target = mmap.mmap(-1, size), mmap.mmap(-1, size)
        to, origin = (ctypes.addressof(ctypes.c_char.from_buffer(m)) for m in (target, source))
        ctypes.memset(to, 1, size)
        ctypes.memset(origin, 2, size)
        began = time.monotonic()
        for _ in range(COPY_TURNS):
            ctypes.memmove(to, origin, size)
        return (2 * size * COPY_TURNS / (time.monotonic() - began),)

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
    began = time.monotonic()
    for _ in range(PING_PONGS):
        if index == 0:
            connection.sendall(small)
            _receive(connection, 8, small)
        else:
            _receive(connection, 8, small)
            connection.sendall(small)
    way = (time.monotonic() - began) / PING_PONGS / 2
    sender = threading.Thread(
        target=lambda: [connection.sendall(large) for _ in range(STREAM_BYTES // len(large))])
    began = time.monotonic()
    sender.start()
    _receive(connection, STREAM_BYTES, bytearray(1 << 20))
    sender.join()
    return STREAM_BYTES / (time.monotonic() - began), way


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
    return sum(streams), max(ways)


class Limits:
    """The least time that an all-reduce of `size` bytes on `ranks` of this host can take."""

    def __init__(self, ranks, transport):
        self.ranks, self.transport = ranks, transport
        if transport == "tcp":
            self.bandwidth, self.way_s = loopback()
        else:
            self.bandwidth, self.way_s = memory_bandwidth(ranks), 0.0

    def microseconds(self, size):
        # shm: each rank reads its input and writes its output once, 2 * ranks * size bytes.
        # tcp: each rank sends 2 (ranks - 1) / ranks of the data, whatever the algorithm.
        moved = 2 * (self.ranks - 1 if self.transport == "tcp" else self.ranks) * size
        return max(self.way_s, moved / self.bandwidth) * 1e6

    def text(self):
        if self.transport == "tcp":
            return (f"loopback {self.bandwidth / 1e9:.2f} GB/s both ways together, "
                    f"{self.way_s * 1e6:.1f} us one way")
        return f"memory {self.bandwidth / 1e9:.1f} GB/s (copies, read + written)"
