"""A run of cases: machines are booted, the guests' results read from their folders, and guests that
die or hang ended and followed by others."""
import os
import shutil
import socket
import time

import covering
import image
from machine import Machine

HERE = os.path.dirname(os.path.abspath(__file__))
STATES = ("ok", "FAILED", "skipped")
SKIPPED, TIMED_OUT, DIED = 77, 124, 125
BOOT_S = 180  # 10 s on a quiet machine
SPARE_S = 30  # for the guest to end a case by itself
LINES_OF_FAILURE = 40


class Result:
    def __init__(self, case, state, seconds, why="", code=0):
        self.case, self.state, self.seconds, self.why, self.code = case, state, seconds, why, code


def show(result):
    why = f"  {result.why}" if result.why else ""
    print(f"   {result.case.name:24} {result.state:8} {result.seconds:6.1f} s{why}", flush=True)


def free_ports(count):
    """Of UDP on loopback. They stay free long enough for a machine to take them."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Guests:
    """One machine, or two, that run the same cases."""

    def __init__(self, runner, cases, folder):
        self.cases = cases
        self.begun = {}  # name: when this was seen
        shared = os.path.join(folder, "shared")
        os.makedirs(shared)
        programs = os.path.join(folder, "programs.cpio")
        image.pack_programs(programs, sorted({os.path.join(runner.build, path) for one in cases
                                              for path in one.programs}))
        hosts = cases[0].hosts
        ports = free_ports(2) if hosts == 2 else None
        self.machines = []
        try:
            for host in range(1, hosts + 1):
                job = os.path.join(folder, f"job-{host}")
                self.fill(job, runner.build, host)
                self.machines.append(
                    Machine(runner.kernel, [runner.tools, programs], job, shared, host, ports))
        except BaseException:
            self.end()
            raise
        self.booted = self.idle_since = time.monotonic()

    def fill(self, job, build, host):
        os.makedirs(os.path.join(job, "cases"))
        for name in ("guest.sh", "functions.sh"):
            shutil.copy(os.path.join(HERE, name), job)
        self.write(job, "settings", f"gyre_build={build}\nhost={host}\n")
        self.write(job, "order", "".join(f"{one.name} {one.seconds}\n" for one in self.cases))
        for one in self.cases:
            self.write(job, f"cases/{one.name}", one.text)
            if one.rows:
                self.write(job, f"rows.{one.rows}", covering.text(one.rows))

    @staticmethod
    def write(job, name, text):
        with open(os.path.join(job, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        """What each machine has left under that name, None for one that has not."""
        texts = []
        for one in self.machines:
            try:
                with open(os.path.join(one.job, name), encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
            except FileNotFoundError:
                texts.append(None)
        return texts

    def has_begun(self, case):
        if case.name not in self.begun and any(text is not None
                                               for text in self.read(f"begun.{case.name}")):
            self.begun[case.name] = time.monotonic()
        return case.name in self.begun

    def result(self, case):
        """None before every machine is done with the case."""
        texts = self.read(f"result.{case.name}")
        if None in texts:
            return None
        rows = [text.split() for text in texts]
        code = max(int(row[0]) for row in rows)
        seconds = max(float(row[2]) - float(row[1]) for row in rows)
        if code == 0:
            return Result(case, "ok", seconds)
        if code == SKIPPED:
            return Result(case, "skipped", seconds, self.last_line(case), code)
        why = f"no end after {case.seconds} s" if code == TIMED_OUT else f"exit code {code}"
        return Result(case, "FAILED", seconds, why, code)

    def last_line(self, case):
        lines = [line for text in self.read(f"output.{case.name}") for line in text.splitlines()]
        return lines[-1] if lines else ""

    def output(self, case, what="output"):
        texts = self.read(f"{what}.{case.name}")
        if len(texts) == 1:
            return texts[0] or ""
        return "".join(f"--- host {host}\n{text or ''}" for host, text in enumerate(texts, 1))

    def are_lost(self, case, deadline):
        """(code, why) if the case will not end."""
        now = time.monotonic()
        # One of two may be done, and gone, before the other one.
        ended = [one.has_ended() for one in self.machines]
        if any(gone and text is None
               for gone, text in zip(ended, self.read(f"result.{case.name}"))):
            return DIED, "the guest died"
        if now > deadline:
            return TIMED_OUT, "the time limit of the run"
        if not self.has_begun(case):
            late = now > self.idle_since + BOOT_S
            return (DIED, f"the guest did not begin it in {BOOT_S} s") if late else None
        if now > self.begun[case.name] + case.seconds + SPARE_S:
            return TIMED_OUT, f"the guest hangs; the case had {case.seconds} s"
        return None

    def end(self):
        for one in self.machines:
            one.end()


class Runner:
    def __init__(self, kernel, tools, build, folder, log, deadline):
        self.kernel, self.tools, self.build, self.log = kernel, tools, build, log
        self.folder, self.deadline = folder, deadline
        self.boots = 0
        self.texts = {}  # name of a case: its output

    def run(self, cases):
        results = []
        for hosts in sorted({one.hosts for one in cases}):
            left = [one for one in cases if one.hosts == hosts]
            while left:
                done = self.boot(left)
                results += done
                left = left[len(done):]
        return results

    def boot(self, cases):
        """Runs these cases until a guest is lost: the results so far, at least one."""
        if time.monotonic() > self.deadline:
            why = "the run had no time left for it"
            return [self.note(Result(one, "FAILED", 0, why, TIMED_OUT)) for one in cases]
        self.boots += 1
        guests = Guests(self, cases, os.path.join(self.folder, f"boot-{self.boots}"))
        results = []
        try:
            for one in cases:
                results.append(self.note(self.follow(guests, one), guests))
                guests.idle_since = time.monotonic()
                if results[-1].why and results[-1].state == "FAILED" and guests.was_lost:
                    break
        finally:
            guests.end()
        return results

    def follow(self, guests, case):
        guests.was_lost = False
        while True:
            if result := guests.result(case):
                return result
            if lost := guests.are_lost(case, self.deadline):
                guests.was_lost = True
                guests.end()
                return Result(case, "FAILED",
                              time.monotonic() - guests.begun.get(case.name, guests.booted),
                              lost[1], lost[0])
            time.sleep(0.1)

    def note(self, result, guests=None):
        text = guests.output(result.case) if guests else ""
        if guests and guests.was_lost:
            text += "".join(f"--- console of host {one.host}\n{one.said()}\n"
                            for one in guests.machines)
        self.texts[result.case.name] = text
        kernel = guests.output(result.case, "kernel") if guests else ""
        self.log.write(f"=== {result.case.name}: {result.state} {result.why}\n{text}\n"
                       f"--- the kernel's log\n{kernel}\n")
        self.log.flush()
        if result.case.name != "command":
            show(result)
            if result.state == "FAILED":
                print("\n".join("     | " + line for line in
                                text.splitlines()[-LINES_OF_FAILURE:]), flush=True)
        return result
