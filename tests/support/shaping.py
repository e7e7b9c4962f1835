"""Rates of links as tc writes them, and the shaping of a link's end by its token bucket filter."""
import argparse
import re

UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
# Of tbf: at least one packet as TCP hands it over, so that it is not cut up; and how long one may
# wait for the link before it is dropped.
BURST, LATENCY = "128kb", "50ms"
# tbf counts whole Ethernet frames: of 1514 bytes, 66 are headers of Ethernet, IP and TCP with its
# timestamps. Acknowledgements are left out; each is for up to 64 KiB, as are the packets of a veth.
FRAME_BYTES, PAYLOAD_BYTES = 1514, 1448


def bits_per_s(text):
    """Of a rate as tc writes it in bits."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.lower())
    if not match or float(match[1]) <= 0:
        raise ValueError(text)
    return float(match[1]) * UNITS[match[2]]


def frame_bits(payload_bytes):
    """Of the frames that carry so many bytes of TCP."""
    return 8 * payload_bytes * FRAME_BYTES / PAYLOAD_BYTES


def rate(text):
    """For argparse."""
    try:
        bits_per_s(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no rate, as 500mbit or 1gbit") from None
    return text


def bucket(link_rate):
    """The words of tc for a link that sends at this rate."""
    return ["tbf", "rate", link_rate, "burst", BURST, "latency", LATENCY]
