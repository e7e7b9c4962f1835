"""A compiler for wheels, and the libraries that are linked into them. The compiler is Zig's, from
PyPI: it makes code for an old glibc on a machine with a new one, and for another processor. The
libraries are static ones, built by it from Debian's sources."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import own_apt

ZIG = "ziglang==0.15.2"
GLIBC = "2.28"  # the oldest whose wheels pip takes as manylinux_2_28
SOURCES_OF = "bookworm"
SOURCES = ("openssl", "hwloc", "tinyxml2")
# Headers alone, which any release of Debian has: by its packages, their folder, and their name and
# version for pkg-config.
HEADERS = {"libcli11-dev": ("CLI", "CLI11", "2.1"), "libfmt-dev": ("fmt", "fmt", "9.1"),
           "nlohmann-json3-dev": ("nlohmann", "nlohmann_json", "3.11"),
           "libibverbs-dev": ("infiniband", None, None)}
FLAGS = ("-fPIC", "-O2", "-fvisibility=hidden", "-fno-sanitize=undefined")
# TLS 1.3 with keys that both ends make needs none of these. No file of the machine is read: another
# OpenSSL's openssl.cnf may name modules that this one does not have.
OPENSSL_WITHOUT = ("shared", "tests", "module", "engine", "legacy", "dso", "ui-console",
                   "autoload-config", "aria", "bf", "blake2", "camellia", "cast", "cmp", "cms",
                   "ct", "des", "dtls", "gost", "idea", "md4", "mdc2", "ocsp", "ocb", "rc2", "rc4",
                   "rmd160", "scrypt", "seed", "siphash", "sm2", "sm3", "sm4", "srp", "srtp", "ts",
                   "whirlpool", "ssl3", "tls1", "tls1_1", "comp")
HWLOC_WITHOUT = ("cairo", "libxml2", "pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl",
                 "libudev", "shared", "readme", "picky")

# Asked for its macros, Zig hands clang a target that clang does not know. Its linker is LLVM's; old
# releases of Meson know that by this name only. It names each feature that its processor lacks, and
# so 512-bit registers, which clang calls evex512, do not come with AVX-512. It refuses -rpath-link,
# and LLVM's linker needs none.
COMPILER = """#!/bin/sh
for word; do
  shift
  case "$word" in
    -Wl,-rpath-link,*) ;;
    *) set -- "$@" "$word" ;;
  esac
done
case " $* " in
  *" -dM "*) exec "{zig}" {name} -target {machine}-linux-gnu "$@" ;;
  *" -Wl,--version "*) echo "LLD 20.1.2 (compatible with GNU linkers)" && exit ;;
  *" -mavx512f "*) set -- "$@" -mevex512 ;;
esac
exec "{zig}" {name} -target {machine}-linux-gnu.{glibc} -fno-sanitize=undefined "$@"
"""

# Thin archives, which Meson asks for by a last T, are no archives to Zig.
ARCHIVER = """#!/bin/sh
mode=${{1%T}}
shift
exec "{zig}" {name} "$mode" "$@"
"""


def say(text):
    print(f"== {text}", flush=True)


def logged(log, command, folder, environment=None):
    """Runs it with its output in a log, or ends with the log's last lines."""
    with open(log, "a", encoding="utf-8", errors="replace") as file:
        code = subprocess.run([str(word) for word in command], cwd=folder, stdin=subprocess.DEVNULL,
                              stdout=file, stderr=file, env={**os.environ, **(environment or {})},
                              check=False).returncode
    if code != 0:
        lines = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()
        called = " ".join(map(str, command))
        sys.exit("\n".join([*lines[-40:], f"{called}: exit code {code} ({log})"]))


class Toolchain:
    """For one kind of processor: x86_64 or aarch64. All of it is kept in `cache`."""

    def __init__(self, cache, machine, jobs):
        self.cache, self.machine, self.jobs = cache, machine, jobs
        self.folder = cache / f"{machine}-{GLIBC}"
        self.prefix = self.folder / "prefix"
        self.tools = self.folder / "bin"
        self.log = self.folder / "log.txt"
        self.apt = own_apt.OwnApt(cache / "apt", SOURCES_OF, ("deb-src",))

    def target(self):
        return f"{self.machine}-linux-gnu.{GLIBC}"

    def make(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.make_compiler()
        # Made anew when this file changes.
        kept = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]
        made = self.prefix / f"complete-{kept}"
        if not made.exists():
            shutil.rmtree(self.prefix, ignore_errors=True)
            self.copy_headers()
            self.apt.set_up(own_apt.mirror() or "http://deb.debian.org/debian",
                            own_apt.mirror("security"))
            for name, build in (("tinyxml2", self.build_tinyxml2), ("hwloc", self.build_hwloc),
                                ("openssl", self.build_openssl)):
                say(f"{name} for {self.target()}")
                source = self.unpack(name)
                build(source)
                shutil.rmtree(source)
            made.touch()

    def make_compiler(self):
        python = self.cache / "zig/bin/python"
        if not python.exists():
            say(f"PyPI: {ZIG}")
            own_apt.run(sys.executable, "-m", "venv", self.cache / "zig")
            own_apt.run(python, "-m", "pip", "install", "--quiet", ZIG)
        (zig,) = self.cache.glob("zig/lib/python3*/site-packages/ziglang/zig")
        self.tools.mkdir(exist_ok=True)
        for name in ("cc", "c++", "ar", "ranlib"):
            script = self.tools / name
            text = COMPILER if name in ("cc", "c++") else ARCHIVER
            text = text.format(zig=zig, name=name, machine=self.machine, glibc=GLIBC)
            script.write_text(text, encoding="utf-8")
            script.chmod(0o755)

    def environment(self):
        return {"CC": str(self.tools / "cc"), "CXX": str(self.tools / "c++"),
                "AR": str(self.tools / "ar"), "RANLIB": str(self.tools / "ranlib"),
                "CFLAGS": " ".join(FLAGS), "CXXFLAGS": " ".join(FLAGS),
                "ZIG_GLOBAL_CACHE_DIR": str(self.cache / "zig-cache"),
                "PKG_CONFIG_LIBDIR": str(self.prefix / "lib/pkgconfig")}

    def run(self, *command, folder):
        logged(self.log, command, folder, self.environment())

    def describe(self, name, version, words):
        """A file for pkg-config."""
        folder = self.prefix / "lib/pkgconfig"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.pc").write_text(
            f"Name: {name}\nDescription: {name}\nVersion: {version}\n"
            f"Cflags: -I{self.prefix}/include\n{words}", encoding="utf-8")

    def copy_headers(self):
        for package, (folder, name, version) in HEADERS.items():
            place = pathlib.Path("/usr/include") / folder
            if not place.is_dir():
                sys.exit(f"wheels: there is no {place}; tools/dev wheels installs {package}")
            shutil.copytree(place, self.prefix / "include" / folder)
            self.keep_licence(package, pathlib.Path("/usr/share/doc") / package / "copyright")
            if name:
                self.describe(name, version, "")

    def keep_licence(self, name, path):
        """Of what ends up in wheels: they have to bring it along."""
        folder = self.prefix / "licenses"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / f"{name}.txt")

    def licences(self):
        """Of all that is linked into wheels; the C++ library is Zig's, from LLVM."""
        (folder,) = self.cache.glob("zig/lib/python3*/site-packages/ziglang/lib")
        return {**{path.name: path for path in (self.prefix / "licenses").iterdir()},
                "libcxx.txt": folder / "libcxx/LICENSE.TXT"}

    def unpack(self, name):
        """The source of a Debian package, with Debian's patches."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        environment = {**os.environ, "APT_CONFIG": str(self.apt.folder / "apt.conf")}
        fetch = ["apt-get", "source", "-q", "--download-only"]
        newest = subprocess.run([*fetch, name], cwd=place, env=environment, check=False,
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL).returncode
        if newest != 0:
            say(f"WARNING: {name}: the newest source could not be fetched, so that of the release "
                "is taken, perhaps without security updates")
            logged(self.log, [*fetch, f"{name}/{SOURCES_OF}"], place, environment)
        (description,) = place.glob("*.dsc")
        logged(self.log, ["dpkg-source", "--no-check", "-x", description, place / "source"], place)
        self.keep_licence(name, place / "source/debian/copyright")
        return place

    def build_tinyxml2(self, place):
        source = place / "source"
        self.run(self.tools / "c++", *FLAGS, "-c", "tinyxml2.cpp", "-o", "tinyxml2.o",
                 folder=source)
        (self.prefix / "lib").mkdir(exist_ok=True)
        self.run(self.tools / "ar", "rcs", self.prefix / "lib/libtinyxml2.a", "tinyxml2.o",
                 folder=source)
        shutil.copy(source / "tinyxml2.h", self.prefix / "include")
        self.describe("tinyxml2", "9.0.0", f"Libs: -L{self.prefix}/lib -ltinyxml2\n")

    def build_hwloc(self, place):
        source = place / "source"
        self.run("./configure", f"--host={self.machine}-linux-gnu", f"--prefix={self.prefix}",
                 "--localstatedir=/var", "--enable-static",
                 *(f"--disable-{one}" for one in HWLOC_WITHOUT), folder=source)
        for part in ("include", "hwloc"):
            self.run("make", f"-j{self.jobs}", "-C", part, "install", folder=source)
        self.describe("hwloc", "2.9.0", f"Libs: -L{self.prefix}/lib -lhwloc -lm\n")

    def build_openssl(self, place):
        source = place / "source"
        self.run("./Configure", f"linux-{self.machine}", f"--prefix={self.prefix}", "--libdir=lib",
                 "--openssldir=/nonexistent",
                 *(f"no-{one}" for one in OPENSSL_WITHOUT), *FLAGS, folder=source)
        self.run("make", f"-j{self.jobs}", "build_libs", "MODULESDIR=/nonexistent",
                 "ENGINESDIR=/nonexistent", folder=source)
        self.run("make", "install_dev", folder=source)

    def machine_file(self):
        """For Meson."""
        path = self.folder / "machine.ini"
        flags = f"['-isystem', '{self.prefix}/include']"
        # In a wheel, programs are in bin and libraries in lib, wherever that is.
        links = "['-Wl,-s', '-Wl,-rpath,$ORIGIN/../lib', '-Wl,-rpath,$ORIGIN']"
        path.write_text(f"""[binaries]
c = '{self.tools}/cc'
cpp = '{self.tools}/c++'
ar = '{self.tools}/ar'
pkgconfig = 'pkg-config'
pkg-config = 'pkg-config'
[built-in options]
c_args = {flags}
cpp_args = {flags}
c_link_args = {links}
cpp_link_args = {links}
[properties]
pkg_config_libdir = '{self.prefix}/lib/pkgconfig'
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = '{self.machine}'
cpu = '{self.machine}'
endian = 'little'
""", encoding="utf-8")
        return path
