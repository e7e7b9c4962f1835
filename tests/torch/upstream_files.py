"""PyTorch's own test files of its distributed layer, out of its source tree, as upstream.py runs
them: with Gyre in gloo's place, and ranks that are forked. test_c10d_common.py has tests that each
backend is to complete; here they are. Its tests of DDP need two GPUs, and are left out."""

import dataclasses
import importlib
import inspect
import os
import pathlib
import shutil
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
# Those that a source tree of that age has.
FILES = ("test_c10d_common", "test_c10d_collectives", "test_c10d_p2p", "test_c10d_process_group")
# Classes of test_c10d_common with methods _test_...(self, backend).
TO_COMPLETE = ("AbstractCommTest", "AbstractLargeCommTest",
               "ProcessGroupWithDispatchedCollectivesTests")
# Releases of Debian whose source package may be of the PyTorch at hand.
RELEASES = ("trixie", "forky")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / \
    "gyre-torch/sources"


def bring(version):
    """The folder of the files of that version, out of Debian's source package."""
    folder = CACHE / version
    if folder.is_dir():
        return folder
    sys.path.insert(0, str(TOP / "tools/package"))
    import own_apt
    for release in RELEASES:
        with tempfile.TemporaryDirectory(prefix="gyre-upstream-") as place:
            place = pathlib.Path(place)
            apt = own_apt.OwnApt(place / "apt", release, kinds=("deb-src",))
            apt.set_up(own_apt.mirror())
            if f" pytorch_{version}+" not in apt.call("source", "--print-uris", "pytorch",
                                                      capture=True):
                continue
            apt.call("source", "-q", "--download-only", "pytorch", folder=place)
            (archive,) = place.glob("pytorch_*.orig.tar.*")
            part = CACHE / f"{version}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            own_apt.run("tar", "-xf", archive, "-C", part, "--strip-components=3", "--wildcards",
                        "*/test/distributed/*.py")
            return part.rename(folder)
    sys.exit(f"upstream.py: Debian has no sources of PyTorch {version}: name the folder of a "
             "source tree of that version, --files=TREE/test/distributed")


def ranks_like(masquerade):
    """What classes of upstream's get first: their ranks are forked, and ask for gloo."""
    import torch.multiprocessing

    class Ranks:
        def _spawn_processes(self):
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, *given, **options):
            if os.environ["UPSTREAM_ON"] == "gyre":
                masquerade()
            super()._run(*given, **options)
    return Ranks


def completed(abstract, process_case):
    """That class, with a test for each of its methods that waits for a backend's name."""
    def test_of(name):
        return lambda self: getattr(self, name)("gloo")

    tests = {}
    for name, method in vars(abstract).items():
        if name.startswith("_test_") and inspect.isfunction(method) and \
                len(inspect.signature(method).parameters) == 2:
            tests[name[1:]] = test_of(name)
    if not issubclass(abstract, process_case):
        def set_up(self):
            process_case.setUp(self)
            self._spawn_processes()
        tests.update(setUp=set_up, device="cpu")
        return type(abstract.__name__.replace("Abstract", "Completed"), (abstract, process_case),
                    tests)
    return type(abstract.__name__, (abstract,), tests)


def claim_everything(folder):
    """The collectives' files ask what a backend can do: all, but for what CPUs have not."""
    if not (folder / "c10d_backend_common.py").is_file():
        return
    common = importlib.import_module("c10d_backend_common")
    (gloo,) = (one for one in common.C10D_BACKENDS if one.name == "gloo")
    if os.environ["UPSTREAM_ON"] == "gyre":
        gloo = dataclasses.replace(gloo, **{
            field.name: True for field in dataclasses.fields(gloo)
            if field.name.startswith("supports_") and "cuda" not in field.name})
    common.C10D_BACKENDS, common.CUDA_BACKENDS = (gloo,), ()


def find_tests(folder, masquerade):
    """{class.test: what makes the test}"""
    from torch.testing._internal.common_distributed import MultiProcessTestCase
    sys.path.insert(0, str(folder))
    for name in ("c10d_backend_common", *FILES):
        sys.modules.pop(name, None)  # they may be of the other backend
    claim_everything(folder)
    ranks = ranks_like(masquerade)
    found = {}
    for name in FILES:
        if not (folder / f"{name}.py").is_file():
            continue
        module = importlib.import_module(name)
        classes = [one for one in vars(module).values() if inspect.isclass(one) and
                   issubclass(one, MultiProcessTestCase) and one.__module__ == name and
                   one.__name__ not in TO_COMPLETE]
        classes += [completed(getattr(module, one), MultiProcessTestCase) for one in TO_COMPLETE
                    if hasattr(module, one)]
        for one in classes:
            made = type(one.__name__, (ranks, one), {})
            for test in dir(made):
                if test.startswith("test_"):
                    found[f"{made.__name__}.{test}"] = lambda made=made, test=test: made(test)
    return found
