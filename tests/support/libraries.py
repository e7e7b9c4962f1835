"""Libraries of this machine."""
import ctypes


def why_no_ucx():
    """Why ucx reaches nobody here, or nothing."""
    try:
        ctypes.CDLL("libucp.so.0")
    except OSError:
        return "there is no libucp.so.0 (libucx0)"
    return None
