"""A cable between a host and a switch that changes bytes, as broken hardware does: the frames'
checksums are right afterwards. Run as a script it relays between two TAP devices that it makes, one
in the network of each of two processes:

  flipping_cable.py HOST_PID HOST_DEVICE SWITCH_PID SWITCH_DEVICE FROM TO

It flips one bit in some of the full TCP segments from the address FROM to the address TO, and
prints "ready" when both devices are there. It ends with its standard input."""
import ctypes
import fcntl
import os
import select
import socket
import struct
import sys

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES = 65536
FRAMES_AT_ONCE = 64
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


class Relay:
    def __init__(self, devices, ends):
        self.devices = devices
        self.ends = b"".join(socket.inet_aton(end) for end in ends)
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

    def pass_on(self, source, target):
        for _ in range(FRAMES_AT_ONCE):
            try:
                frame = os.read(source, FRAME_BYTES)
            except BlockingIOError:
                return
            try:
                os.write(target, self.changed(frame))
            except (BlockingIOError, OSError):
                pass  # lost, as on a cable

    def run(self):
        one, other = self.devices
        while True:
            ready, _, _ = select.select([one, other, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            for device in ready:
                self.pass_on(device, other if device == one else one)


def main(host_pid, host_device, switch_pid, switch_device, *ends):
    devices = [tap(host_pid, host_device), tap(switch_pid, switch_device)]
    print("ready", flush=True)
    Relay(devices, ends).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
