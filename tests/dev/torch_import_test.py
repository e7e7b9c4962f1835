"""PyTorch's backend compiles itself at the first import, once, or says what is missing. PyTorch and
the compiler have stand-ins. torch_import_test.py ROOT"""
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
PYTHON_H = pathlib.Path(sysconfig.get_path("include"), "Python.h")
TORCH = """__version__ = {version!r}
class _C: pass
def compiled_with_cxx11_abi(): return True
"""
# What pybind11 leaves in the interpreter when a library of this key is loaded.
KEY = """import ctypes
python = ctypes.pythonapi
for name in ("PyInterpreterState_Get", "PyInterpreterState_GetDict"):
    getattr(python, name).restype = ctypes.c_void_p
shared = python.PyInterpreterState_GetDict(ctypes.c_void_p(python.PyInterpreterState_Get()))
ctypes.cast(shared, ctypes.py_object).value["__pybind11_internals_v11_{key}__"] = 1
"""
GYRE = """import os
def include_folder(): return os.path.dirname(__file__)
def library_folder(): return os.path.dirname(__file__)
"""
# The package without its __init__, which wants all of PyTorch.
LOAD = """import sys, types
package = types.ModuleType("gyre_torch")
package.__path__ = [{folder!r}]
sys.modules["gyre_torch"] = package
from gyre_torch import native
print(native.load().answer)
"""
EXTENSION = """#include <Python.h>
static struct PyModuleDef made = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "_C", .m_size = -1};
PyMODINIT_FUNC PyInit__C(void) {
  PyObject* module = PyModule_Create(&made);
  PyModule_AddIntConstant(module, "answer", 42);
  return module;
}
"""
# Notes each call, takes its time, and makes of everything that is linked the extension above.
COMPILER = """#!/bin/sh
echo "$*" >>{folder}/calls
for word; do last=$word; done
case " $* " in
  *" -shared "*) exec cc -shared -fPIC -I{include} {folder}/extension.c -o "$last" ;;
esac
sleep 0.3
: >"$last"
"""


class Backend(unittest.TestCase):
    """The first import."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = pathlib.Path(self.folder.name)
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.place),
                            "HOME": str(self.place), "CXX": str(self.place / "c++")}
        self.write("gyre/__init__.py", GYRE)
        self.write("torch/include/torch/csrc/distributed/c10d/Backend.hpp", "")
        self.write("extension.c", EXTENSION)
        self.write("c++", COMPILER.format(folder=self.place, include=PYTHON_H.parent))
        (self.place / "c++").chmod(0o755)
        subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o",
                        self.place / "gyre/libgyre.so.0"], check=True, timeout=60)
        self.package = ROOT / "tools/pytorch/gyre_torch"
        self.use("2.6.0")

    def write(self, path, text):
        target = self.place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def use(self, version):
        self.write("torch/__init__.py", TORCH.format(version=version))

    def begin(self):
        program = LOAD.format(folder=str(self.package))
        return subprocess.Popen([sys.executable, "-B", "-c", program], env=self.environment,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def load(self):
        process = self.begin()
        out, errors = process.communicate(timeout=60)
        return process.returncode, out, errors

    def fails(self, *words):
        code, _, errors = self.load()
        self.assertEqual(code, 1)
        for word in words:
            self.assertIn(word, errors)

    def links(self):
        calls = (self.place / "calls").read_text(encoding="utf-8").splitlines()
        return sum("-l:libgyre.so.0" in call for call in calls)

    def test_an_old_pytorch_is_refused(self):
        self.use("2.5.1+cpu")
        self.fails("PyTorch 2.5.1+cpu", "needs PyTorch 2.6 or newer")

    @unittest.skipUnless(PYTHON_H.exists(), "this Python has no headers")
    def test_processes_that_import_it_at_once_compile_it_once(self):
        for process in [self.begin() for _ in range(4)]:
            out, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, "42\n"), errors)
        self.assertEqual(self.links(), 1)

    @unittest.skipUnless(PYTHON_H.exists(), "this Python has no headers")
    def test_each_pytorch_gets_its_own_and_keeps_it(self):
        for version in ("2.6.0", "2.14.1+cpu", "2.6.0"):
            self.use(version)
            self.assertEqual(self.load()[0], 0)
        self.assertEqual(self.links(), 2)

    def bring(self, minor, key):
        """As a wheel does that was compiled for this Python, with classes of that key."""
        self.package = self.place / "package/tools/pytorch/gyre_torch"
        shutil.copytree(ROOT / "tools/pytorch/gyre_torch", self.package)
        (self.package.parent / "src").symlink_to(ROOT / "tools/pytorch/src")
        target = self.package / f"prebuilt/torch{minor}-{sys.implementation.cache_tag}/_C.so"
        target.parent.mkdir(parents=True)
        self.write("brought.c", EXTENSION.replace("42", "43") +
                   f'const char key[] = "__pybind11_internals_v11_{key}__";\n')
        subprocess.run(["cc", "-shared", "-fPIC", f"-I{PYTHON_H.parent}", self.place / "brought.c",
                        "-o", target], check=True, timeout=60)

    @unittest.skipUnless(PYTHON_H.exists(), "this Python has no headers")
    def test_what_the_wheel_brings_serves_the_pytorch_of_its_key_and_minor_version(self):
        self.bring("2.6", "one")
        for version, key, answer in (("2.6.1", "one", "43\n"), ("2.6.1+debian", "other", "42\n"),
                                     ("2.7.0", "one", "42\n")):
            self.write("torch/__init__.py", TORCH.format(version=version) + KEY.format(key=key))
            code, out, errors = self.load()
            self.assertEqual((code, out), (0, answer), errors)
            self.assertEqual("compiling for PyTorch" in errors, answer == "42\n")

    @unittest.skipUnless(PYTHON_H.exists(), "this Python has no headers")
    def test_without_a_compiler_it_says_how_to_get_one(self):
        self.environment["CXX"] = "no-such-compiler"
        self.fails("no-such-compiler", "apt-get install g++", "CXX")

    @unittest.skipUnless(PYTHON_H.exists(), "this Python has no headers")
    def test_what_the_compiler_says_is_shown(self):
        self.write("c++", "#!/bin/sh\necho 'strange header' >&2\nexit 3\n")
        self.fails("exit code 3", "strange header")

    def test_without_headers_it_names_the_packages(self):
        (self.place / "torch/include/torch/csrc/distributed/c10d/Backend.hpp").unlink()
        self.fails("libtorch-dev")

    def test_without_gyre_it_says_how_to_get_it(self):
        """PyPI has another project of this name."""
        (self.place / "gyre/__init__.py").write_text("")
        self.environment["PKG_CONFIG_LIBDIR"] = str(self.place)
        if any(pathlib.Path(top, "gyre/gyre.h").exists()
               for top in ("/usr/include", "/usr/local/include")):
            self.skipTest("Gyre is installed on this machine")
        self.fails("Gyre's wheel", "libgyre-dev", "another project")

    def test_a_cache_that_cannot_be_written_is_named(self):
        self.write("file", "")
        self.environment["XDG_CACHE_HOME"] = str(self.place / "file")
        self.fails(str(self.place / "file"), "XDG_CACHE_HOME")


if __name__ == "__main__":
    unittest.main()
