"""Compiles one file of kernels with nvcc, gathers what all of them came to, or checks it.

nvcc_build.py compile FATBIN NOTES DEPFILE ROOT CCACHE NVCC FLAGS.. SOURCE
  NOTES   gets the seconds of processor time it took, and what ptxas says of each kernel; what
          CCACHE (a program, or "none") has kept of an earlier compilation comes from there
nvcc_build.py gather ASSEMBLY REPORT (FATBIN NOTES)..
  ASSEMBLY  gets what brings all images into a library, as symbols gyre_image_ROW
  REPORT    gets the kernels with their registers, spills, code and ptxas's time, each file's time
            and size, and the sums, which are printed, and whatever breaks a limit
nvcc_build.py check REPORT LIBRARY
  exit code 1 if a kernel spills that must not, or a limit is broken
nvcc_build.py nvcc NVCC FLAGS.. -c SOURCE -o FATBIN
  what ccache takes for a compiler: nvcc, and notes where a compiler has its warnings"""
import glob
import os
import re
import resource
import subprocess
import sys
import tempfile
import zlib

INSTANCES_MOST = 140
# Of the library with the device code for all architectures; and of a build on two processors, where
# slower machines than the one that was measured have three times as long.
BYTES_MOST, SECONDS_MOST, SLACK = 24 * 10**6, 360, 3
# What notes alone are for.
OF_NOTES = re.compile(r"ptxas info|seconds |code |\s+\d+ bytes stack frame")
NEVER_SPILL = ("Float32", "Float16", "BFloat16")


def compile_one(fatbin, notes, depfile, root, ccache, nvcc, *rest):
    *flags, source = rest
    own = os.path.realpath(__file__)
    flags = [*flags, "-MD", "-MF", depfile, "-c", source, "-o", fatbin]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, own, "nvcc", nvcc]
        environment = dict(os.environ)
        if ccache != "none":
            # One word for it; what it does changes with this file and with nvcc alone.
            wrapper = os.path.join(folder, "nvcc_fatbin")
            write(wrapper, f'#!/bin/sh\nexec "{sys.executable}" "{own}" nvcc "{nvcc}" "$@"\n')
            os.chmod(wrapper, 0o700)
            command = [ccache, wrapper]
            identity = f"{zlib.crc32(read(own).encode())} {nvcc} {os.path.getmtime(nvcc)}"
            # Other clones find it too.
            environment.update(CCACHE_COMPILERTYPE="nvcc", CCACHE_NOHASHDIR="1",
                               CCACHE_COMPILERCHECK="string:" + identity,
                               CCACHE_BASEDIR=os.path.realpath(root))
        done = subprocess.run([*command, *flags], env=environment, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode != 0 or "warning" in said:
        sys.stderr.write("\n".join(line for line in said.split("\n") if not OF_NOTES.match(line)))
    write(notes, said)
    return done.returncode


def run_nvcc(nvcc, *flags):
    """Preprocesses, or compiles to a fatbin."""
    if "-c" not in flags:
        return subprocess.run([nvcc, *flags], check=False).returncode
    flags = ["-fatbin" if flag == "-c" else flag for flag in flags]
    with tempfile.TemporaryDirectory() as kept:
        done = subprocess.run([nvcc, *flags, "--ptxas-options=-v", "--keep", "--keep-dir", kept],
                              capture_output=True, text=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        sys.stderr.write(f"seconds {spent.ru_utime + spent.ru_stime:.1f}\n"
                         f"{code_sizes(kept, ' '.join(flags))}{done.stdout}{done.stderr}")
    return done.returncode


def code_sizes(folder, flags):
    """A line for each kernel in the cubins: 'code SYMBOL ARCHITECTURE BYTES'. nvcc names the
    architecture in a cubin's name where there are several."""
    lines = []
    for cubin in sorted(glob.glob(os.path.join(folder, "*.cubin"))):
        told = re.findall(r"(?:compute|sm)_(\d+)", os.path.basename(cubin)) or \
            re.findall(r"sm_(\d+)", flags)
        target = "sm_" + told[-1]
        sections = subprocess.run(["readelf", "-SW", cubin], capture_output=True, text=True).stdout
        for symbol, size in re.findall(r"\.text\.(\w+) +PROGBITS +\w+ \w+ (\w+)", sections):
            lines.append(f"code {symbol} {target} {int(size, 16)}\n")
    return "".join(lines)


def kernels_in(name, notes):
    """[(row, protocol, architecture, registers, bytes spilled, bytes of code, ptxas's ms)]"""
    found = []
    for block in notes.split("Compiling entry function")[1:]:
        symbol, target = re.match(r" '(\w+)' for '(\w+)'", block).groups()
        protocol = symbol.rsplit("_", 1)[-1]
        spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill", block))
        registers = int(re.search(r"Used (\d+) registers", block).group(1))
        code = re.search(rf"^code {symbol} {target} (\d+)$", notes, re.MULTILINE)
        time = re.search(r"Compile time = ([\d.]+) ms", block)
        found.append((name, protocol, target, registers, spilled,
                      int(code.group(1)) if code else 0, float(time.group(1)) if time else 0.0))
    return found


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def faults(kernels):
    """Kernels that spill and must not, and files that nothing is known of."""
    found = [f"spills: {' '.join(str(word) for word in kernel[:5])}" for kernel in kernels
             if kernel[4] > 0 and kernel[1] == "simple" and kernel[0].split("_")[0] in NEVER_SPILL]
    return found + [f"ptxas or readelf do not tell of {kernel[:3]}" for kernel in kernels
                    if kernel[5] == 0]


def sums_of(text):
    """Instances, seconds of a processor."""
    found = re.search(r"(\d+) instances, .* (\d+) s of a processor", text)
    return (int(found.group(1)), float(found.group(2))) if found else (0, 0.0)


def over_limits(text):
    """What a report says that no build should."""
    instances, seconds = sums_of(text)
    wrong = re.findall(r"^(?:spills: |ptxas or ).*", text, re.MULTILINE)
    if instances == 0:
        wrong.append("a report without sums")
    if instances > INSTANCES_MOST:
        wrong.append(f"{instances} instances, more than {INSTANCES_MOST}")
    if seconds / 2 > SECONDS_MOST * SLACK:
        wrong.append(f"{seconds / 2:.0f} s on two processors, more than {SECONDS_MOST}")
    return wrong


# In the section where CUDA's tools look for images.
ASSEMBLY = """/* {bytes} bytes, checksum {checksum:08x} */
    .section .nv_fatbin, "a", @progbits
    .balign 16
    .globl gyre_image_{row}
    .hidden gyre_image_{row}
gyre_image_{row}:
    .incbin "{path}"
"""


def assembly(fatbins):
    text = ""
    for path in fatbins:
        with open(path, "rb") as file:
            image = file.read()
        row = os.path.basename(path)[:-len(".fatbin")]
        text += ASSEMBLY.format(bytes=len(image), checksum=zlib.crc32(image), row=row,
                                path=os.path.realpath(path))
    return text + '    .section .note.GNU-stack, "", @progbits\n'


def gather(assembly_file, report_file, *parts):
    fatbins, all_notes = parts[::2], parts[1::2]
    kernels, files, seconds = [], [], 0.0
    for path, built in zip(all_notes, fatbins):
        notes, name = read(path), os.path.basename(path)[:-len(".txt")]
        took = float(re.search(r"^seconds ([\d.]+)", notes, re.MULTILINE).group(1))
        files.append(f"{name:20s} {took:5.1f} s {os.path.getsize(built) / 1024:6.0f} KiB")
        seconds += took
        kernels += kernels_in(name, notes)
    lines = [f"{name:20s} {protocol:7s} {target:8s} {registers:4d} registers {spilled:5d} B "
             f"spilled {code / 1024:6.1f} KiB of code {ms:7.0f} ms in ptxas"
             for name, protocol, target, registers, spilled, code, ms in sorted(kernels)]
    lines += files + faults(kernels)
    instances = len({kernel[:2] for kernel in kernels})
    spilling = sum(kernel[4] > 0 for kernel in kernels)
    mib = sum(os.path.getsize(path) for path in fatbins) / 2**20
    lines.append(f"{instances} instances, {len(kernels)} kernels over all architectures of which "
                 f"{spilling} spill, {seconds:.0f} s of a processor, {mib:.1f} MiB")
    write(report_file, "\n".join(lines) + "\n")
    write(assembly_file, assembly(fatbins))
    print(lines[-1])
    print("\n".join(over_limits(read(report_file))), end="")
    return 0


def loaded_bytes(library):
    """Of a library's segments: its file's size less what only debuggers read."""
    headers = subprocess.run(["readelf", "-lW", library], check=True, capture_output=True,
                             text=True).stdout
    return sum(int(size, 16) for size in
               re.findall(r"^ +LOAD +\w+ \w+ \w+ (\w+)", headers, re.MULTILINE))


def check(report_file, library):
    text = read(report_file)
    wrong = over_limits(text)
    size = loaded_bytes(library)
    if size > BYTES_MOST:
        wrong.append(f"{library} has {size} bytes, more than {BYTES_MOST}")
    instances, seconds = sums_of(text)
    print(f"{instances} instances, {seconds / 2:.0f} s on two processors, "
          f"{size / 1e6:.1f} MB in the library")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit({"compile": compile_one, "gather": gather, "check": check,
              "nvcc": run_nvcc}[sys.argv[1]](*sys.argv[2:]))
