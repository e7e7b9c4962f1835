"""What passes a device of a host of two_hosts.py, as a network analyser records it: AF_PACKET."""
import ctypes
import os
import socket
import struct
import threading

ALL, IPV4, IPV6, TCP = 0x0003, 0x0800, 0x86DD, 6
SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE = 263, 6, 33
BUFFER_BYTES, FRAME_BYTES = 64 << 20, 1 << 18


class Capture:
    """From now on, until `end`. `pid`: a process in the host."""

    def __init__(self, pid, device):
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net", "rb") as own, open(f"/proc/{pid}/ns/net", "rb") as other:
            if libc.setns(other.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM,
                                            socket.htons(ALL))
                self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
                self.socket.bind((device, ALL))
            finally:
                if libc.setns(own.fileno(), 0) != 0:
                    os._exit(1)  # everything that follows would be in the wrong network
        self.socket.settimeout(0.2)
        self.packets = []
        self.over = False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while True:
            try:
                packet, (_, protocol, kind, *_) = self.socket.recvfrom(FRAME_BYTES)
            except socket.timeout:
                if self.over:
                    return
                continue
            self.packets.append((protocol, kind, packet))

    def end(self):
        """All packets have been read; none was lost."""
        self.over = True
        self.thread.join()
        statistics = self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        lost = struct.unpack("II", statistics)[1]
        self.socket.close()
        assert lost == 0, f"{lost} packets were not recorded"
        assert self.packets, "nothing was recorded"

    def streams(self):
        """The bytes of each direction of each TCP connection."""
        flows = {}
        for protocol, _, packet in self.packets:
            segment = tcp_segment(protocol, packet)
            if segment is None:
                continue
            ends, sequence, flags, payload = segment
            pieces = flows.setdefault(ends, {})
            if flags & 2:  # SYN
                pieces["first"] = sequence + 1
            elif payload and len(pieces.get(sequence, b"")) < len(payload):
                pieces[sequence] = payload
        return {ends: assembled(pieces) for ends, pieces in flows.items()}

    def raw(self):
        return [packet for _, _, packet in self.packets]


def tcp_segment(protocol, packet):
    """((source, target) with ports, sequence, flags, payload), or None if it is no TCP."""
    if protocol == IPV4 and packet[9] == TCP:
        begin, end = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big") or len(packet)
        ends = packet[12:20]
    elif protocol == IPV6 and packet[6] == TCP:
        begin, end = 40, 40 + int.from_bytes(packet[4:6], "big") or len(packet)
        ends = packet[8:40]
    else:
        return None
    header = begin + (packet[begin + 12] >> 4) * 4
    sequence = int.from_bytes(packet[begin + 4:begin + 8], "big")
    return (ends, packet[begin:begin + 4]), sequence, packet[begin + 13], packet[header:end]


def assembled(pieces):
    first = pieces.pop("first", None)
    if first is None:
        first = min(pieces, default=0)
    stream = bytearray()
    for sequence, payload in sorted(pieces.items(), key=lambda one: (one[0] - first) % (1 << 32)):
        place = (sequence - first) % (1 << 32)
        assert place <= len(stream), "a segment was not recorded"
        stream[place:place + len(payload)] = payload
    return bytes(stream)
