#!/usr/bin/env python3
"""Runs PyTorch's own DistributedTest, which is part of every PyTorch, with Gyre in gloo's place:
code that asks for "gloo" gets our backend. `tools/dev torch-upstream` calls it; --gloo runs the
same on gloo, and --files runs test files of its source tree. EXPECTED lists the expected failures,
with reasons.

Upstream starts Python anew for each rank of each test, 9 s a test. Here ranks are forked from this
process, which has imported PyTorch and has no other threads; --spawn does as upstream does."""

import argparse
import functools
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

# Tests that fail, or are skipped, where gloo passes: a test, or a test and a world size.
EXPECTED = {
    "test_ddp_logging_data_cpu":
        "PyTorch's log of DDP calls every backend that is not its own 'custom'",
    "PythonProcessGroupExtensionTest.test_backend_config": "sees the name of who took gloo's place",
    "ProcessGroupWithDispatchedCollectivesTests.test_init_process_group_for_all_backends":
        "PyTorch calls every backend that is not its own 'custom'",
    "GlooProcessGroupTest.test_work_duration": "Gyre times every operation, without being asked to",
}
# Where PyTorch before 2.14 asks its own backends alone.
EXPECTED_OF_OLD = {
    "CompletedCommTest.test_sequence_num_set_default_pg":
        "PyTorch asks its own backends alone for sequence numbers",
    "CompletedCommTest.test_sequence_num_set_new_group":
        "PyTorch asks its own backends alone for sequence numbers",
}
# And those that fail on gloo, too. Where a run on gloo is at hand, that is asked.
BROKEN = {
    ("test_gather_object", 4): "pickles a class that is local to a function",
    ("test_gather_object_subgroup", 4): "pickles a class that is local to a function",
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0],
                                     prog="tools/dev torch-upstream")
    parser.add_argument("-k", metavar="PATTERN", default="", dest="pattern",
                        help="only tests whose name matches this regular expression")
    parser.add_argument("--world-size", type=int, default=2, metavar="N", help="default: 2")
    parser.add_argument("--gloo", dest="backends", action="store_const", const=["gloo"],
                        default=["gyre"], help="run on gloo, to compare with")
    parser.add_argument("--both", dest="backends", action="store_const", const=["gloo", "gyre"],
                        help="run on gloo, and then on Gyre in its place")
    parser.add_argument("--files", nargs="?", const="", metavar="FOLDER",
                        help="test_c10d_*.py of PyTorch's source tree in place of DistributedTest: "
                        "of its folder test/distributed, or else of Debian's source package")
    parser.add_argument("--resume", action="store_true",
                        help="skip tests that have a result from an earlier run")
    parser.add_argument("--timeout", type=int, default=90, metavar="S",
                        help="time limit of a test (default: %(default)s s)")
    parser.add_argument("--spawn", action="store_true", help="a new Python for each rank")
    parser.add_argument("--list", action="store_true", help="name the tests, and run nothing")
    parser.add_argument("--results", type=pathlib.Path, metavar="FOLDER",
                        default=pathlib.Path("build-torch/upstream"),
                        help="folder for a line of JSON and the output of each test")
    chosen = parser.parse_args()
    if chosen.files is not None and (chosen.spawn or chosen.world_size != 2):
        parser.error("--files goes with neither --spawn nor --world-size: those tests say how many "
                     "ranks they have, and their ranks are forked")
    return chosen


def masquerade():
    """In a rank: who asks for gloo gets ours, and who looks for gloo's events in a profile, too."""
    import gyre_torch
    gyre_torch.take_over("gloo")
    from torch.testing._internal.distributed import distributed_test
    look_up = distributed_test.get_profiling_event

    def event(name, *others, **options):
        found = look_up(re.sub("^gloo:", "gyre:", name), *others, **options)
        for one in found:
            one.name = re.sub("^gyre:", "gloo:", one.name)
        return found
    distributed_test.get_profiling_event = event


# What upstream skips on gloo, for reasons that have gone: gloo has these by now, and so have we.
LIFTED = ("Only MPI supports CPU all_to_all_single", "Only MPI supports all_to_all")


def skip_below_3_ranks(test):
    """Upstream skips these, of the group of ranks 1 and 2, below 8."""
    @functools.wraps(test)
    def run_or_skip(*given, **options):
        if int(os.environ["WORLD_SIZE"]) < 3:
            from torch.testing._internal.common_distributed import TEST_SKIPS
            sys.exit(TEST_SKIPS["small_worldsize"].exit_code)
        return test(*given, **options)
    return run_or_skip


def upstream_module():
    """It reads the environment and decorates its tests when it is imported."""
    from torch.testing._internal import common_distributed, common_utils
    skip_if = common_utils.skip_but_pass_in_sandcastle_if
    common_utils.skip_but_pass_in_sandcastle_if = \
        lambda condition, reason: skip_if(condition and reason not in LIFTED, reason)
    common_distributed.skip_if_small_worldsize = skip_below_3_ranks
    common_distributed.TIMEOUT_OVERRIDE.clear()
    os.environ.setdefault("INIT_METHOD", "file://")  # until a test makes a folder of its own
    from torch.testing._internal.distributed import distributed_test
    common_utils.skip_but_pass_in_sandcastle_if = skip_if
    return distributed_test


def suite(fresh):
    """The class of tests."""
    distributed_test = upstream_module()

    class TestDistributed(distributed_test.TestDistBackend,
                          distributed_test.DistributedTest._DistTestBase):
        """Named as upstream's: some tests read it."""

        def setUp(self):
            super().setUp()
            import torch.multiprocessing
            made = torch.multiprocessing.get_context("spawn" if fresh else "fork")
            self._start_processes(made.Process)

        def tearDown(self):
            ranks = self.processes
            super().tearDown()
            for process in ranks:
                process.join(5)
                if process.exitcode is None:
                    process.kill()
                    process.join()

        def _check_return_codes(self, fn, elapsed_time):
            super()._check_return_codes(fn, elapsed_time)
            codes = [process.exitcode for process in self.processes]
            if fn not in self.skip_return_code_checks and any(codes):
                raise RuntimeError(f"ranks ended with {codes}")

        @classmethod
        def _run(cls, rank, test_name, file_name, pipe, **options):
            distributed_test.INIT_METHOD = os.environ["INIT_METHOD"]
            if os.environ["UPSTREAM_ON"] == "gyre":
                masquerade()
            super()._run(rank, test_name, file_name, pipe, **options)

    # Where spawned ranks look it up.
    TestDistributed.__qualname__, TestDistributed.__module__ = "TestDistributed", "__main__"
    globals()["TestDistributed"] = TestDistributed
    return TestDistributed


class Printed:
    """What this process and its ranks print, into a file."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        sys.stdout.flush()
        self.kept = [os.dup(1), os.dup(2)]
        file = os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)

    def __exit__(self, *_):
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(self.kept, 1):
            os.dup2(kept, number)
            os.close(kept)


def run(tests, name, log):
    """{"test", "result": ok, skipped or failed, "seconds", "why"}"""
    begun = time.monotonic()
    result = unittest.TestResult()
    with Printed(log):
        tests[name]().run(result)
    failures = result.errors + result.failures
    made = {"test": name, "result": "ok", "seconds": round(time.monotonic() - begun, 1), "why": ""}
    if failures:
        text = "\n".join(text for _, text in failures)
        with open(log, "a", encoding="utf-8") as file:
            file.write(text)
        lines = [line for line in text.splitlines() if re.match(r"\w*(Error|Exception)\b", line)]
        made.update(result="failed", why=(lines or text.splitlines()[-1:])[-1][:300])
    elif result.skipped:
        made.update(result="skipped", why=result.skipped[0][1])
    return made


def read(path):
    """The last result of each test."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {one["test"]: one for one in map(json.loads, lines)}


def reason_for(name, size):
    for table in (EXPECTED, BROKEN):
        for key in (name, (name, size)):
            if key in table:
                return table[key]
    return None


def summary(found, baseline, size, what, on_gloo):
    """Prints it; whether all is as it should be."""
    count = {kind: sum(one["result"] == kind for one in found.values())
             for kind in ("ok", "skipped", "failed")}
    name = "gloo" if on_gloo else "gyre"
    seconds = sum(one["seconds"] for one in found.values())
    print(f"{name}, {what}: {count['ok']} ok, {count['skipped']} skipped, "
          f"{count['failed']} failed, of {len(found)} tests in {seconds:.0f} s")
    if on_gloo:
        for one in found.values():
            if one["result"] == "failed":
                print(f"  {one['test']}: {reason_for(one['test'], size) or one['why']}")
        return True
    bad = [one for one in found.values() if one["result"] == "failed" or
           (one["result"] == "skipped" and baseline.get(one["test"], {}).get("result") == "ok")]
    unexpected = [one["test"] for one in bad if reason_for(one["test"], size) is None and
                  baseline.get(one["test"], {}).get("result") != "failed"]
    outdated = [one["test"] for one in found.values()
                if one["result"] == "ok" and reason_for(one["test"], size) is not None]
    for one in bad:
        reason = reason_for(one["test"], size)
        if reason is not None:
            print(f"  expected: {one['test']}: {reason}")
    for test in unexpected:
        print(f"  NOT EXPECTED: {test}: {found[test]['why']}")
    for test in outdated:
        print(f"  passes, though expected to fail: {test}")
    if baseline:
        both = [test for test in found if test in baseline]
        ours = sum(found[test]["result"] == "ok" for test in both)
        theirs = sum(baseline[test]["result"] == "ok" for test in both)
        print(f"  of {len(both)} tests that ran on both, {ours} pass here and {theirs} on gloo")
    return count["ok"] > 0 and not unexpected and not outdated


def run_all(tests, names, chosen):
    """The tests' results, as far as they are there already from those."""
    size = chosen.world_size
    label = str(size) if chosen.files is None else "files"
    run_name = f"{os.environ['UPSTREAM_ON']}-{label}"
    logs, results = chosen.results / run_name, chosen.results / f"{run_name}.jsonl"
    logs.mkdir(parents=True, exist_ok=True)
    before = read(results) if chosen.resume else {}
    found = {name: before[name] for name in names if name in before}
    for name in names:
        if name in found:
            continue
        found[name] = one = run(tests, name, logs / f"{name}.txt")
        why = f"  ({one['why']})" if one["why"] else ""
        print(f"{one['result']:8}{one['seconds']:6.1f} s  {name}{why}", flush=True)
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
    on_gloo = os.environ["UPSTREAM_ON"] == "gloo"
    what = f"{size} ranks" if chosen.files is None else "files"
    return summary(found, read(chosen.results / f"gloo-{label}.jsonl"), size, what, on_gloo)


def find_tests(chosen):
    """{name: what makes the test}"""
    if chosen.files is None:
        made = suite(chosen.spawn)
        return {name: functools.partial(made, name)
                for name in unittest.TestLoader().getTestCaseNames(made)}
    import torch
    import upstream_files
    folder = pathlib.Path(chosen.files) if chosen.files else \
        upstream_files.bring(torch.__version__.split("+")[0])
    if not (folder / "test_c10d_common.py").is_file() and \
            not (folder / "test_c10d_collectives.py").is_file():
        sys.exit(f"upstream.py: {folder} has no test_c10d_common.py: --files wants the folder "
                 "test/distributed of PyTorch's source tree")
    return upstream_files.find_tests(folder.absolute(), masquerade)


def main():
    chosen = arguments()
    import torch
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14):
        EXPECTED.update(EXPECTED_OF_OLD)
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(chosen.world_size),
                      DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(chosen.timeout))
    good = True
    with tempfile.TemporaryDirectory() as folder:
        # Upstream leaves the files of its stores behind, with what ranks met by.
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        for backend in chosen.backends:
            os.environ["UPSTREAM_ON"] = backend
            tests = find_tests(chosen)
            names = [name for name in tests if re.search(chosen.pattern, name)]
            if not names:
                print(f"no test has {chosen.pattern!r} in its name", file=sys.stderr)
                return 2
            if chosen.list:
                print("\n".join(names))
                return 0
            good = run_all(tests, names, chosen) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
elif __name__ == "__mp_main__":
    suite(True)  # in a spawned rank
