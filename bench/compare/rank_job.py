"""A running job of one contender: its ranks, and the socket by which each is told what to do (the
protocol is in rank_loop.h). A rank that is told nothing sleeps."""
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time

START_SECONDS = 60
ANSWER_SECONDS = 120
END_SECONDS = 20


class JobFailed(Exception):
    """The ranks ended, failed or did not answer in time."""


class Rank:
    """One rank's connection; answers are lines."""

    def __init__(self, connection):
        self.connection = connection
        self.got = b""

    def tell(self, line):
        self.connection.sendall(line.encode() + b"\n")

    def answer(self, end):
        """The next line, before the monotonic time `end`."""
        while b"\n" not in self.got:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.connection], [], [], left)[0]:
                raise JobFailed("a rank did not answer in time")
            try:
                part = self.connection.recv(1 << 20)
            except OSError as error:
                raise JobFailed(f"a rank is gone: {error.strerror}") from error
            if not part:
                raise JobFailed("a rank is gone")
            self.got += part
        line, _, self.got = self.got.partition(b"\n")
        return json.loads(line)


class RankJob:
    """`start` is a contenders.Start without a folder. `settings` are those of rank_loop.h; the
    contender's own stand above them."""

    def __init__(self, contender, start, settings):
        self.name = contender.name
        self.folder = tempfile.TemporaryDirectory(prefix="gyre-compare-")
        self.output = tempfile.TemporaryFile("w+")
        self.ranks = []
        path = os.path.join(self.folder.name, "socket")
        meeting = os.path.join(self.folder.name, "meeting")
        os.mkdir(meeting)
        self.count = min(start.ranks, contender.max_ranks)
        words, extra = contender.command(start._replace(ranks=self.count, folder=meeting))
        kept = {key: value for key, value in os.environ.items()
                if not key.startswith(("GYRE_", "OMPI_", "MPIR_", "UCX_", "I_MPI_", "FI_",
                                       "COMPARE_"))}
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(self.count)
            self.process = subprocess.Popen(
                words, env={**kept, **settings, **extra, "COMPARE_SOCKET": path},
                stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output,
                start_new_session=True)
            try:
                self._welcome(door)
            except JobFailed:
                self.kill()
                raise

    def _welcome(self, door):
        end = time.monotonic() + START_SECONDS
        found = []
        while len(found) < self.count:
            if select.select([door], [], [], 0.1)[0]:
                rank = Rank(door.accept()[0])
                found.append((rank.answer(end), rank))
            elif self.process.poll() is not None:
                raise JobFailed(f"its program ended with exit code {self.process.returncode}"
                                f"{self.said()}")
            elif time.monotonic() > end:
                raise JobFailed(f"its ranks did not start within {START_SECONDS} s{self.said()}")
        found.sort(key=lambda pair: pair[0]["rank"])
        if [hello["rank"] for hello, _ in found] != list(range(self.count)):
            raise JobFailed("its ranks do not make one job: "
                            f"{[hello['rank'] for hello, _ in found]}{self.said()}")
        self.library = " ".join(found[0][0]["library"].split())
        self.ranks = [rank for _, rank in found]

    def said(self):
        """The end of what the ranks and their launcher printed."""
        self.output.seek(0)
        text = self.output.read().strip()[-1500:]
        return f"\n{text}" if text else ""

    def ask(self, line):
        """The answers of all ranks, in order."""
        end = time.monotonic() + ANSWER_SECONDS
        try:
            for rank in self.ranks:
                rank.tell(line)
            return [rank.answer(end) for rank in self.ranks]
        except (OSError, JobFailed, json.JSONDecodeError) as error:
            text = f"{line}: {error}{self.said()}"
            self.kill()
            raise JobFailed(text) from error

    def end(self):
        """Lets the ranks leave; those that stay are killed."""
        try:
            for rank in self.ranks:
                rank.tell("end")
            self.process.wait(END_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()

    def kill(self):
        """Idempotent. Launchers take their ranks along when they are told to end."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        for rank in self.ranks:
            rank.connection.close()
        self.ranks = []
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.output.close()
        self.folder.cleanup()
