"""What people install: wheels are what pip expects, and Debian's packages what a release can have.
package_test.py ROOT"""
import base64
import configparser
import csv
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import types
import unittest
import zipfile

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path[:0] = [str(ROOT / "tools/package"), str(ROOT / "tools")]
import install_check  # noqa: E402
import packages  # noqa: E402
import prebuilt  # noqa: E402
import wheels  # noqa: E402
from wheel_file import Metadata, write_sdist, write_wheel  # noqa: E402


class Wheels(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def make(self):
        program = self.out / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        return write_wheel(self.out, Metadata("some-thing", "1.2", "A thing", ["torch>=2.6"]),
                           "py3-none-any", {"some_thing/__init__.py": b"x = 1\n",
                                            "some_thing/bin/program": program})

    def test_a_wheel_records_every_file_with_its_hash(self):
        path = self.make()
        self.assertEqual(path.name, "some_thing-1.2-py3-none-any.whl")
        with zipfile.ZipFile(path) as archive:
            rows = list(csv.reader(io.TextIOWrapper(
                archive.open("some_thing-1.2.dist-info/RECORD"), "utf-8")))
            self.assertEqual({row[0] for row in rows}, set(archive.namelist()))
            for name, said, size in rows:
                if name.endswith("RECORD"):
                    continue
                content = archive.read(name)
                kept = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                self.assertEqual((said, int(size)), (f"sha256={kept.rstrip('=')}", len(content)))
            mode = archive.getinfo("some_thing/bin/program").external_attr >> 16
            self.assertTrue(mode & 0o111)
            self.assertIn(b"Requires-Dist: torch>=2.6\n",
                          archive.read("some_thing-1.2.dist-info/METADATA"))

    def test_the_same_files_make_the_same_bytes(self):
        first = self.make().read_bytes()
        self.assertEqual(first, self.make().read_bytes())
        made = [write_sdist(self.out, Metadata("thing", "1", "A thing"), {"a": b"b"}).read_bytes()
                for _ in range(2)]
        self.assertEqual(*made)

    def test_the_backends_source_distribution_makes_the_wheel_that_we_make(self):
        with tarfile.open(wheels.torch_sdist(self.out)) as archive:
            archive.extractall(self.out)
        (folder,) = self.out.glob("gyre_torch-*/")
        program = "import torch_backend; torch_backend.build_wheel('..')"
        subprocess.run([sys.executable, "-c", program], cwd=folder,
                       env={**os.environ, "PYTHONPATH": str(folder / "build")},
                       check=True, timeout=60)
        (theirs,) = self.out.glob("*.whl")
        ours = wheels.torch_wheel(self.out / "ours")
        self.assertEqual(zipfile.ZipFile(theirs).namelist(), zipfile.ZipFile(ours).namelist())

    def test_the_backends_wheel_has_the_entry_points_of_its_project(self):
        project = tomllib.loads((ROOT / "tools/pytorch/pyproject.toml").read_text())["project"]
        with zipfile.ZipFile(wheels.torch_wheel(self.out)) as archive:
            names = archive.namelist()
            (path,) = (name for name in names if name.endswith("/entry_points.txt"))
            said = configparser.ConfigParser(delimiters="=")
            said.read_string(archive.read(path).decode())
        self.assertEqual({group: dict(said[group]) for group in said.sections()},
                         project["entry-points"])
        for group in said.sections():
            module = said[group]["gyre"].split(":")[0]
            self.assertTrue({f"{module}.py", f"{module}/__init__.py"} & set(names), module)

    def test_the_source_distribution_has_what_meson_needs(self):
        with tarfile.open(wheels.gyre_sdist(self.out)) as archive:
            names = {name.split("/", 1)[1] for name in archive.getnames()}
        self.assertLessEqual({"meson.build", "meson_options.txt", "lib/api/gyre.map", "LICENSE",
                              "PKG-INFO", "tools/dev"}, names)
        self.assertEqual({name for name in names if name.startswith(("build/", "dist/"))}, set())

    def test_the_library_wheel_holds_no_links_and_starts_its_programs(self):
        number = wheels.version()
        stage, licence = self.out / "stage", self.out / "openssl.txt"
        licence.write_text("its licence")
        for name in (f"lib/libgyre.so.{number}", f"lib/libgyre_gradsync.so.{number}",
                     "include/gyre/gyre.h", "bin/gyre", "bin/all_reduce_perf"):
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            (stage / name).write_text(name)
            (stage / name).chmod(0o755)
        tools = types.SimpleNamespace(machine="aarch64",
                                      licences=lambda: {"openssl.txt": licence})
        path = wheels.gyre_wheel(tools, stage, self.out)
        self.assertEqual(path.name, f"gyre-{number}-py3-none-manylinux_2_28_aarch64.whl")
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name).decode() for name in archive.namelist()}
        info = f"gyre-{number}.dist-info"
        self.assertEqual(files["gyre/lib/libgyre.so.0"], f"lib/libgyre.so.{number}")
        self.assertEqual(files["gyre/lib/libgyre.so"], "INPUT(libgyre.so.0)\n")
        self.assertIn(f'__version__ = "{number}"', files["gyre/__init__.py"])
        self.assertIn("Root-Is-Purelib: false", files[f"{info}/WHEEL"])
        self.assertEqual(files[f"{info}/licenses/openssl.txt"], "its licence")
        for name in ("gyre", "all_reduce_perf"):
            self.assertIn(f"\n{name} = gyre.__main__:run_program\n",
                          files[f"{info}/entry_points.txt"])

    def test_the_kernels_wheel_puts_its_library_beside_that_of_its_release(self):
        number, licence = wheels.version(), self.out / "licence.txt"
        licence.write_text("its licence")
        tools = types.SimpleNamespace(machine="x86_64", licences=lambda: {
            "libcxx.txt": licence, "openssl.txt": licence})
        path = wheels.images_wheel(tools, b"images", self.out)
        self.assertEqual(path.name, f"gyre_cu13-{number}-py3-none-manylinux_2_28_x86_64.whl")
        info = f"gyre_cu13-{number}.dist-info"
        with zipfile.ZipFile(path) as archive:
            self.assertEqual(archive.read("gyre/lib/libgyre_cuda.so.0"), b"images")
            self.assertIn(f"Requires-Dist: gyre=={number}\n".encode(),
                          archive.read(f"{info}/METADATA"))
            self.assertEqual({name for name in archive.namelist() if "licenses" in name},
                             {f"{info}/licenses/{name}" for name in ("LICENSE", "libcxx.txt")})

    def test_a_wheel_may_need_an_older_glibc_than_its_name_says(self):
        name = "gyre-0.2.0-py3-none-manylinux_2_28_x86_64.whl"
        for found, right in (("manylinux_2_28_x86_64", True), ("manylinux_2_17_x86_64", True),
                             ("manylinux_2_29_x86_64", False), ("manylinux_3_0_x86_64", False),
                             ("manylinux_2_28_aarch64", False)):
            self.assertEqual(wheels.serves(found, name), right, found)

    def test_the_backends_wheel_brings_what_was_compiled_and_names_what_that_needs(self):
        library = self.out / "_C.so"
        library.write_bytes(b"code")
        path = wheels.torch_wheel(self.out, {"torch2.15-cpython-311/_C.so": library})
        self.assertEqual(path.name,
                         f"gyre_torch-{wheels.version()}-py3-none-{prebuilt.TAG}.whl")
        with zipfile.ZipFile(path) as archive:
            self.assertEqual(
                archive.read("gyre_torch/prebuilt/torch2.15-cpython-311/_C.so"), b"code")

    def test_compiled_code_needs_no_newer_libraries_than_the_wheels_name_says(self):
        library, program = self.out / "_C.so", self.out / "code.c"
        program.write_text("#include <stdlib.h>\nint f(const char* s) { return atoi(s); }\n")
        subprocess.run(["cc", "-shared", "-fPIC", program, "-o", library], check=True, timeout=60)
        needed = prebuilt.needed_versions(library)
        self.assertIn(("GLIBC", 2, 2, 5), needed)
        self.assertEqual(prebuilt.too_new(needed | {("GLIBC", 2, 36), ("GLIBCXX", 3, 4, 30)}),
                         [("GLIBC", 2, 36)])

    def test_a_wheel_that_names_a_folder_of_its_builder_is_refused(self):
        path = self.make()
        wheels.refuse_traces(path, (ROOT,))
        with self.assertRaisesRegex(SystemExit, "some_thing/bin/program in .* names the builder"):
            wheels.refuse_traces(path, (pathlib.Path("/bin/sh"),))

    def test_installed_files_name_no_folder_of_the_build(self):
        said = wheels.relocated("prefix=/somewhere\nLibs: -L${prefix}/lib -lgyre\n", "0.2.0")
        self.assertEqual(said, b"prefix=${pcfiledir}/../..\nLibs: -L${prefix}/lib -lgyre\n")
        self.assertEqual(wheels.relocated("a/libgyre.so.0.2.0", "0.2.0"), b"a/libgyre.so.0")


class Debian(unittest.TestCase):
    def test_the_backend_is_left_out_where_pytorch_is_too_old(self):
        text = packages.control_text()
        old, new = (packages.for_release(text, name) for name in ("debian-12", "debian-13"))
        self.assertNotIn("torch", old)
        self.assertIn("\nPackage: python3-gyre-torch\n", new)
        self.assertNotIn("@torch@", old + new)

    def test_an_upgrade_of_the_release_upgrades_the_packages(self):
        names = [packages.changelog(name).split("(")[1].split(")")[0]
                 for name in ("debian-12", "debian-13", "debian-testing")]
        ends = ("~deb12u1", "~deb13u1", "")
        self.assertEqual(names, [wheels.version() + end for end in ends])


class InstallCheck(unittest.TestCase):
    def test_it_finds_the_commands_of_the_page_and_knows_their_proofs(self):
        text = (ROOT / install_check.PAGE).read_text(encoding="utf-8")
        found = install_check.blocks(text)
        self.assertEqual(set(found), set(install_check.PROOFS))
        self.assertEqual(text.count("in an empty system:"), len(found))
        for way, (releases, commands) in found.items():
            self.assertLessEqual(len(commands), 5, way)
            self.assertLessEqual(set(releases), set(packages.SUITES), way)
        self.assertIn("gyre run -n 4 ./hello", found["apt"][1])

    def test_a_command_may_have_several_lines(self):
        page = "<!-- in an empty system: a, on x y -->\n\n    one \\\n      more\n    two\n\nend\n"
        self.assertEqual(install_check.blocks(page), {"a": (["x", "y"], ["one more", "two"])})

    def test_it_times_what_ended_well_and_nothing_after_a_failure(self):
        for commands, code, ended in ((["true", "true"], 0, 2), (["true", "false", "true"], 1, 1),
                                      (["true", "false | true"], 1, 1)):
            ran = subprocess.run(["bash", "-c", install_check.script(commands)], text=True,
                                 capture_output=True, timeout=60, check=False)
            self.assertEqual((ran.returncode, len(install_check.times(ran.stdout))), (code, ended))

    def test_readmes_program_is_the_one_that_is_compiled(self):
        self.assertTrue(install_check.program_of_readme().startswith("#include <gyre/gyre.h>\n"))


class Versions(unittest.TestCase):
    def test_all_places_have_the_same(self):
        number = wheels.version()
        major, minor, patch = map(int, number.split("."))
        code = 10000 * major + 100 * minor + patch
        for path, pattern, said in (
                ("include/gyre/gyre.h", r"#define GYRE_(?:MAJOR|MINOR|PATCH|VERSION_CODE) (\d+)$",
                 [str(one) for one in (major, minor, patch, code)]),
                ("CHANGELOG.md", r"^## (\S+?),", [number]),
                ("tools/pytorch/meson.build", r"^project\(.* version: '(.*?)'", [number]),
                ("tools/pytorch/pyproject.toml", r"^version = \"(.*)\"", [number]),
                ("tools/package/conda/meta.yaml", r"set version = \"(.*)\"", [number]),
                ("tools/package/spack/package.py", r"^    version\(\"(.*)\"\)", [number])):
            found = re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M)
            self.assertEqual(found[:len(said)], said, path)


if __name__ == "__main__":
    unittest.main()
