"""The installed tree works for its users. README's program builds against it as strict C99, through
pkg-config and through CMake, and runs under the installed gyre. The library exports the API alone.
install_test.py SOURCE_ROOT BUILD_FOLDER MESON"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, MESON, EXAMPLES = "", "", "", ""
STRICT_C = ["cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
RANKS = 2
EXPECTED = [f"[{rank}] {RANKS} ranks are here" for rank in range(RANKS)]

# A program of NCCL's user, who renames and nothing else.
NCCL_PROGRAM = os.path.join("tests", "api", "nccl_examples", "point_to_point.c")

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.18)
project(user C)
set(CMAKE_C_STANDARD 99)
find_package(gyre {version} REQUIRED)
add_executable(hello hello.c)
target_link_libraries(hello PRIVATE {target})
"""


def checked(arguments, **how):
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, **how)
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def version_of_build():
    return re.search(r"version: '(\d+\.\d+)", text_of(ROOT, "meson.build")).group(1)


def readme_program():
    return re.search(r"```c\n(.*?)```", text_of(ROOT, "README.md"), re.S).group(1)


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        stage = os.path.join(cls.folder.name, "stage")
        checked([MESON, "install", "-C", BUILD, "--destdir", stage, "--no-rebuild", "--quiet"])
        # The prefix, moved: what is installed must not depend on where it was meant to be.
        (header,) = glob.glob(f"{stage}/**/include/gyre/gyre.h", recursive=True)
        cls.prefix = os.path.join(cls.folder.name, "moved")
        os.rename(os.path.dirname(os.path.dirname(os.path.dirname(header))), cls.prefix)
        (library,) = glob.glob(f"{cls.prefix}/lib*/**/libgyre.so.0", recursive=True)
        cls.library, cls.libdir = library, os.path.dirname(library)
        cls.source = os.path.join(cls.folder.name, "hello.c")
        with open(cls.source, "w") as file:
            file.write(readme_program())

    def run_ranks(self, program):
        said = checked([f"{self.prefix}/bin/gyre", "run", "-n", str(RANKS), "--timeout", "60",
                        program], env={**os.environ, "LD_LIBRARY_PATH": self.libdir})
        self.assertEqual(sorted(said.splitlines()), EXPECTED)

    def pkg_config_flags(self, package="gyre"):
        return checked(["pkg-config", f"--define-variable=prefix={self.prefix}", "--cflags",
                        "--libs", package],
                       env={**os.environ, "PKG_CONFIG_PATH": f"{self.libdir}/pkgconfig"}).split()

    def test_a_renamed_nccl_program_builds_through_pkg_config_and_runs(self):
        source = os.path.join(self.folder.name, "ported.c")
        with open(source, "w") as file:
            file.write(checked(["sed", "s/nccl/gyre/g", os.path.join(ROOT, NCCL_PROGRAM)]))
        program = os.path.join(self.folder.name, "ported")
        checked([*STRICT_C, source, *self.pkg_config_flags(), "-pthread", "-o", program])
        said = checked([program], env={**os.environ, "LD_LIBRARY_PATH": self.libdir})
        self.assertEqual(said, "right\n")

    def test_the_first_example_is_readmes_program(self):
        self.assertEqual(re.sub(r"^/\*.*?\*/\n", "", text_of(EXAMPLES, "hello.c"), flags=re.S),
                         readme_program())

    def test_every_example_in_cxx_builds_through_pkg_config(self):
        sources = glob.glob(os.path.join(EXAMPLES, "*.cc"))
        self.assertGreaterEqual(len(sources), 3)
        for source in sources:
            checked(["c++", "-std=c++20", "-O1", source, *self.pkg_config_flags("gyre-gradsync"),
                     "-o", os.path.join(self.folder.name, "example")])

    def test_a_transport_plugin_builds_from_the_headers_alone_and_carries_a_job(self):
        library = os.path.join(self.folder.name, "libunix_transport.so")
        cflags = [flag for flag in self.pkg_config_flags() if not flag.startswith(("-l", "-L"))]
        checked([*STRICT_C, "-Wconversion", "-shared", "-fPIC", *cflags,
                 os.path.join(EXAMPLES, "unix_transport.c"), "-o", library])
        program = f"{self.prefix}/bin/all_reduce_perf"
        if not os.path.exists(program):
            self.skipTest("the benchmarks are not built here")
        said = checked([f"{self.prefix}/bin/gyre", "run", "-n", str(RANKS), "--timeout", "60",
                        program, "-b", "8", "-e", "4M", "-f", "64", "-n", "3", "-c", "1"],
                       env={**os.environ, "LD_LIBRARY_PATH": self.libdir, "GYRE_TRANSPORT": "unix",
                            "GYRE_TRANSPORT_PLUGIN": library, "GYRE_SOCKET_IFNAME": "lo"})
        self.assertIn("Out of bounds values : 0 OK", said)

    def test_a_strict_c99_program_builds_through_pkg_config_and_runs(self):
        flags = self.pkg_config_flags()
        program = os.path.join(self.folder.name, "hello-pkg-config")
        checked([*STRICT_C, self.source, *flags, "-o", program])
        self.run_ranks(program)

    def test_a_cxx_program_may_include_the_headers(self):
        for header in ("gyre.h", "transport.h"):
            checked(["c++", "-std=c++11", "-Wall", "-Wextra", "-Werror", "-x", "c++",
                     "-fsyntax-only", f"-I{self.prefix}/include", "-include", f"gyre/{header}",
                     "/dev/null"])

    def built_by_cmake(self, source, target):
        user = os.path.join(self.folder.name, target.replace("::", "-"))
        os.makedirs(user)
        shutil.copy(source, f"{user}/hello.c")
        with open(f"{user}/CMakeLists.txt", "w") as lists:
            lists.write(CMAKE_LISTS.format(version=version_of_build(), target=target))
        checked(["cmake", "-S", user, "-B", f"{user}/build", f"-DCMAKE_PREFIX_PATH={self.prefix}"])
        checked(["cmake", "--build", f"{user}/build"])
        return f"{user}/build/hello"

    @unittest.skipUnless(shutil.which("cmake"), "no cmake here")
    def test_a_program_builds_through_cmake_and_runs(self):
        self.run_ranks(self.built_by_cmake(self.source, "gyre::gyre"))

    @unittest.skipUnless(shutil.which("cmake"), "no cmake here")
    def test_a_program_that_trains_builds_through_cmake_and_runs(self):
        program = self.built_by_cmake(os.path.join(EXAMPLES, "line.c"), "gyre::gradsync")
        said = checked([f"{self.prefix}/bin/gyre", "run", "-n", str(RANKS), "--timeout", "60",
                        program], env={**os.environ, "LD_LIBRARY_PATH": self.libdir})
        self.assertEqual(said.splitlines(), ["[0] y = 3.00 x + 1.00"])

    @unittest.skipUnless(shutil.which("cmake"), "no cmake here")
    def test_cmake_refuses_a_version_with_another_api(self):
        user = os.path.join(self.folder.name, "refused")
        os.makedirs(user)
        shutil.copy(self.source, user)
        for version in ("0.0", "1.0", "9"):
            with open(f"{user}/CMakeLists.txt", "w") as lists:
                lists.write(CMAKE_LISTS.format(version=version, target="gyre::gyre"))
            done = subprocess.run(["cmake", "-S", user, "-B", f"{user}/build-{version}",
                                   f"-DCMAKE_PREFIX_PATH={self.prefix}"], capture_output=True)
            self.assertNotEqual(done.returncode, 0, version)

    def exported(self, library):
        symbols = checked(["nm", "--dynamic", "--defined-only", "--format=posix",
                           f"{self.libdir}/{library}"])
        return {line.split()[0].split("@")[0] for line in symbols.splitlines()}

    def declared(self, header):
        with open(f"{self.prefix}/include/gyre/{header}") as file:
            return set(re.findall(r"^GYRE_API [^;(]*?\b(gyre\w+)\(", file.read(), re.M))

    def test_the_libraries_export_the_api_alone(self):
        for library, one in (("libgyre.so.0", "gyreAllReduce"),
                             ("libgyre_gradsync.so.0", "gyreGradWait")):
            names = self.exported(library)
            self.assertIn(one, names)
            self.assertEqual({n for n in names if not re.fullmatch(r"gyre[A-Z]\w*", n)}, set())

    def test_every_function_of_the_headers_is_exported(self):
        for header, library, least in (("gyre.h", "libgyre.so.0", 30),
                                       ("gradsync.h", "libgyre_gradsync.so.0", 12)):
            declared = self.declared(header)
            self.assertGreater(len(declared), least)
            self.assertEqual(declared - self.exported(library), set())

    def test_a_c99_program_that_trains_builds_through_pkg_config_and_runs(self):
        program = os.path.join(self.folder.name, "trains")
        source = os.path.join(EXAMPLES, "line.c")
        checked([*STRICT_C, source, *self.pkg_config_flags("gyre-gradsync"), "-o", program])
        said = checked([f"{self.prefix}/bin/gyre", "run", "-n", str(RANKS), "--timeout", "60",
                        program], env={**os.environ, "LD_LIBRARY_PATH": self.libdir})
        self.assertEqual(said.splitlines(), ["[0] y = 3.00 x + 1.00"])


if __name__ == "__main__":
    ROOT, BUILD, MESON = (sys.argv.pop(1) for _ in range(3))
    EXAMPLES = os.path.join(ROOT, "docs", "examples")
    unittest.main()
