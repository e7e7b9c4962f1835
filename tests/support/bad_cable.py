"""A cable between a host and a switch that treats frames badly. Run as a script it relays between
two TAP devices that it makes, one in the network of each of two processes:

  bad_cable.py HOST_PID HOST_DEVICE SWITCH_PID SWITCH_DEVICE FAULT...

  flip=FROM,TO       one bit in some of the full TCP segments from an address to another, as broken
                     hardware does: the frames' checksums are right afterwards
  loss=SHARE         so many of the frames are lost, each by chance
  twice=SHARE        come twice
  late=SHARE         come LATE_MS after their time, behind later ones
  delay=MS           all come so much later

It prints "ready" when both devices are there, and how many frames it spoilt when it ends. It ends
with its standard input."""
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES = 65536
FRAMES_AT_ONCE = 64
LATE_MS = 5
# Of those that carry much payload: so many pass first, for the ranks to meet; then one of so many
# is changed.
FULL_BYTES, SPARED, PERIOD = 1200, 200, 40
ETHERNET, IPV4, TCP = 14, 0x0800, 6


def tap(pid, name):
    """A TAP device in the network of a process, up."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{pid}/ns/net", "rb") as network:
        if libc.setns(network.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def payload_of(frame):
    """(offset of the TCP header, of its payload, end), or None if it is no TCP over IPv4."""
    if len(frame) < ETHERNET + 40 or frame[12:14] != IPV4.to_bytes(2, "big"):
        return None
    header = (frame[ETHERNET] & 15) * 4
    if frame[ETHERNET + 9] != TCP:
        return None
    segment = ETHERNET + header
    end = ETHERNET + int.from_bytes(frame[ETHERNET + 2:ETHERNET + 4], "big")
    return segment, segment + (frame[segment + 12] >> 4) * 4, end


def flip(frame, segment, place):
    """One bit at the place, which is an even number of bytes behind the TCP header, and the
    checksum that fits (RFC 1624)."""
    before = int.from_bytes(frame[place:place + 2], "big")
    frame[place] ^= 0x10
    after = int.from_bytes(frame[place:place + 2], "big")
    check = int.from_bytes(frame[segment + 16:segment + 18], "big")
    total = (~check & 0xFFFF) + (~before & 0xFFFF) + after
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    frame[segment + 16:segment + 18] = (~total & 0xFFFF).to_bytes(2, "big")


class Flipping:
    def __init__(self, ends):
        self.ends = b"".join(socket.inet_aton(end) for end in ends.split(","))
        self.seen = 0

    def changed(self, frame):
        found = payload_of(frame)
        if found is None or frame[ETHERNET + 12:ETHERNET + 20] != self.ends:
            return frame
        segment, payload, end = found
        if end - payload < FULL_BYTES:
            return frame
        self.seen += 1
        if self.seen <= SPARED or self.seen % PERIOD:
            return frame
        frame = bytearray(frame)
        flip(frame, segment, payload + (end - payload) // 4 * 2)
        return frame


class Relay:
    def __init__(self, devices, faults):
        self.devices = devices
        known = dict(fault.split("=", 1) for fault in faults)
        self.flipping = Flipping(known.pop("flip")) if "flip" in known else None
        self.delay_s = 1e-3 * float(known.pop("delay", 0))
        self.shares = {name: float(known.pop(name, 0)) for name in ("loss", "twice", "late")}
        if known:
            raise ValueError(f"no such fault: {' '.join(known)}")
        self.chance = random.Random(1)
        self.waiting, self.order = [], itertools.count()  # (when, order, device, frame)
        self.spoilt = dict.fromkeys([*self.shares, "flip"], 0)

    def happens(self, name):
        found = self.shares[name] > 0 and self.chance.random() < self.shares[name]
        self.spoilt[name] += found
        return found

    def pass_on(self, source, target):
        for _ in range(FRAMES_AT_ONCE):
            try:
                frame = os.read(source, FRAME_BYTES)
            except BlockingIOError:
                return
            if self.happens("loss"):
                continue
            if self.flipping:
                passed, frame = frame, self.flipping.changed(frame)
                self.spoilt["flip"] += frame is not passed
            for _ in range(2 if self.happens("twice") else 1):
                self.send(target, frame, self.delay_s + self.happens("late") * 1e-3 * LATE_MS)

    def send(self, target, frame, delay_s):
        if delay_s > 0:
            heapq.heappush(self.waiting, (time.monotonic() + delay_s, next(self.order), target,
                                          frame))
            return
        try:
            os.write(target, frame)
        except (BlockingIOError, OSError):
            pass  # lost, as on a cable

    def next_s(self):
        """Until a frame is due."""
        return max(0, self.waiting[0][0] - time.monotonic()) if self.waiting else None

    def run(self):
        one, other = self.devices
        while True:
            ready, _, _ = select.select([one, other, sys.stdin], [], [], self.next_s())
            if sys.stdin in ready:
                print(*(f"{name}={count}" for name, count in self.spoilt.items()), flush=True)
                return
            while self.waiting and self.next_s() == 0:
                _, _, target, frame = heapq.heappop(self.waiting)
                self.send(target, frame, 0)
            for device in ready:
                self.pass_on(device, other if device == one else one)


def main(host_pid, host_device, switch_pid, switch_device, *faults):
    devices = [tap(host_pid, host_device), tap(switch_pid, switch_device)]
    print("ready", flush=True)
    Relay(devices, faults).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
