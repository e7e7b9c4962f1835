"""Detects pauses of the machine itself, so that a rank is not blamed for being late then."""
import threading
import time

BEAT_S = 0.02
LATE_S = 0.1  # a beat that is later than that is a stall


class Pulse(threading.Thread):
    """Sleeps for a moment again and again, and keeps when it woke too late."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stalls = []  # (end, how long)
        self.start()

    def run(self):
        while True:
            due = time.monotonic() + BEAT_S
            time.sleep(BEAT_S)
            late = time.monotonic() - due
            if late > LATE_S:
                self.stalls.append((due + late, late))

    def stalled_s(self, since):
        """In all, from then on."""
        return sum(late for end, late in list(self.stalls) if end > since)
