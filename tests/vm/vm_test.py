"""Runs tests in a virtual machine that has what this machine may lack: RDMA over Ethernet in
software (rxe), netem, a kernel of its own."""
import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from xml.sax.saxutils import quoteattr

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import case as cases  # noqa: E402
import image  # noqa: E402
import machine  # noqa: E402
import run  # noqa: E402

SKIPPED = 77  # as Meson takes it
DETAILS = """\
Without a case, all run, one after the other in one guest; a guest that dies costs the case that
killed it. The guest has Debian's own kernel, and the programs of build/. The kernel and the tools
of the guest are made once, in ~/.cache/gyre/vm; the first time downloads 70 MB by apt. QEMU uses
KVM where the processor shows it, else it emulates, correctly and slowly: nothing here measures
speed.

Output: build/vm/log.txt, and a summary as JUnit in build/vm/results.xml. Exit code: 0 if no case
failed, 1 if one did, 77 if a guest cannot run here; of a shell command its own, 124 at the time
limit, 125 if the guest died.

examples:
  tools/dev vm-test --list
  tools/dev vm-test --short
  tools/dev vm-test verbs
  tools/dev vm-test --hosts 2 --shell-command 'rxe_card; meet start; rdma link'
"""


def read_arguments(arguments):
    parser = argparse.ArgumentParser(
        prog="tools/dev vm-test", description=__doc__, epilog=DETAILS, allow_abbrev=False,
        usage="%(prog)s [OPTIONS] [CASE...]", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the cases and run none")
    parser.add_argument("--short", action="store_true",
                        help="only the cases for every change: three minutes on two cores")
    parser.add_argument("--timeout", type=float, default=1800, metavar="SECONDS",
                        help="end after this time, and fail; default %(default)s")
    parser.add_argument("--shell-command", metavar="TEXT",
                        help="instead of cases: bash runs this in the guest")
    parser.add_argument("--hosts", type=int, default=1, choices=[1, 2], metavar="N",
                        help="for a shell command: 1 machine, or 2 with a cable between; each runs "
                        "it, with host=1 or 2")
    parser.add_argument("--programs", nargs="+", default=[], metavar="PATH",
                        help="for a shell command: programs of build/ that it calls")
    parser.add_argument("--keep", action="store_true",
                        help="keep what the guest was given and has left, in build/vm")
    parser.add_argument("--build", default="build", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--targets", action="store_true", help=argparse.SUPPRESS)
    said = parser.parse_args(arguments)
    said.cases = chosen(parser, said)
    return said


def chosen(parser, said):
    if said.shell_command is not None:
        if said.names or said.short:
            parser.error("a shell command runs instead of cases")
        return [cases.command(said.shell_command, int(said.timeout), said.hosts, said.programs)]
    found = {one.name: one for one in cases.all_cases()}
    for name in said.names:
        if name not in found:
            parser.error(f"there is no case {name}; --list names them")
    picked = [found[name] for name in said.names] or list(found.values())
    return [one for one in picked if one.is_short or not said.short]


def say(text):
    print(f"== vm-test: {text}", flush=True)


def show_list(found):
    for one in found:
        marks = ["short"] * one.is_short + ["two machines"] * (one.hosts == 2)
        print(f"  {one.name:24} {one.about()}" + (f" ({', '.join(marks)})" if marks else ""))


def without_programs(found, build):
    """(cases whose programs are there, results of the others)."""
    ready, results = [], []
    for one in found:
        lacking = [path for path in one.programs if not os.path.exists(os.path.join(build, path))]
        if lacking:
            results.append(run.Result(one, "skipped", 0, f"{' '.join(lacking)} is not built"))
        else:
            ready.append(one)
    return ready, results


def write_summary(path, results, seconds):
    counts = {state: sum(one.state == state for one in results) for state in run.STATES}
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<testsuite name="vm" tests="{len(results)}" failures="{counts["FAILED"]}" '
                   f'errors="0" skipped="{counts["skipped"]}" time="{seconds:.1f}">\n')
        for one in results:
            inside = {"ok": "", "skipped": f"<skipped message={quoteattr(one.why)}/>",
                      "FAILED": f"<failure message={quoteattr(one.why)}/>"}[one.state]
            file.write(f'<testcase classname="vm" name="{one.case.name}" '
                       f'time="{one.seconds:.1f}">{inside}</testcase>\n')
        file.write("</testsuite>\n")
    return f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped"


def skip(said, folder, why):
    print(f"vm-test: skipped: {why}", file=sys.stderr)
    write_summary(os.path.join(folder, "results.xml"),
                  [run.Result(one, "skipped", 0, why) for one in said.cases], 0)
    return SKIPPED


def run_all(said, folder):
    log = os.path.join(folder, "log.txt")
    began = time.monotonic()
    if why := machine.why_not():
        return skip(said, folder, why)
    try:
        name, kernel, tools = image.base(say)
    except image.Missing as missing:
        return skip(said, folder, str(missing))
    ready, results = without_programs(said.cases, said.build)
    for result in results:
        run.show(result)
    say(f"kernel {name}, {'KVM' if machine.has_kvm() else 'emulated processor'}, "
        f"{len(ready)} cases; log {log}")
    jobs = tempfile.mkdtemp(prefix="run-", dir=folder)
    try:
        with open(log, "w", encoding="utf-8") as file:
            runner = run.Runner(kernel, tools, os.path.abspath(said.build), jobs, file,
                                time.monotonic() + said.timeout)
            results += runner.run(ready)
    finally:
        if said.keep:
            say(f"kept {jobs}")
        else:
            shutil.rmtree(jobs, ignore_errors=True)
    if said.shell_command is not None:
        print(runner.texts.get("command", ""), end="")
        return results[-1].code
    seconds = time.monotonic() - began
    summary = write_summary(os.path.join(folder, "results.xml"), results, seconds)
    say(f"{summary}; {seconds:.0f} s; log {log}")
    return 1 if any(one.state == "FAILED" for one in results) else 0


def main(arguments):
    said = read_arguments(arguments)
    if said.list:
        show_list(said.cases)
        return 0
    if said.targets:
        print(" ".join(sorted({path for one in said.cases for path in one.programs})))
        return 0
    folder = os.path.join(os.path.abspath(said.build), "vm")
    os.makedirs(folder, exist_ok=True)
    return run_all(said, folder)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("vm-test: ended by a signal"))
    sys.exit(main(sys.argv[1:]))
