"""Compiles one file of kernels with nvcc, gathers the results of all of them, or checks them.

nvcc_build.py compile FATBIN NOTES DEPFILE ROOT CCACHE NVCC FLAGS.. SOURCE
  NOTES   gets the seconds of processor time that it took, and ptxas's report on each kernel; if
          CCACHE (a program, or "none") has kept an earlier compilation, they come from that one
nvcc_build.py gather ASSEMBLY REPORT (FATBIN NOTES)..
  ASSEMBLY  gets the code that brings all images into a library, as symbols gyre_image_ROW
  REPORT    gets the kernels with their registers, spills, code and ptxas's time, each file's time
            and size, and every broken limit; also the sums, which are printed
nvcc_build.py check REPORT LIBRARY
  exit code 1 if a kernel spills that must not, or a limit is broken
nvcc_build.py nvcc NVCC FLAGS.. [--assembler=PTXAS] -c SOURCE -o FATBIN
  the compiler that ccache calls: it runs nvcc, and puts the notes where a compiler has its warnings
  PTXAS   of an older CUDA assembles nvcc's PTX, so that drivers of that CUDA load the code
nvcc_build.py assembler WHERE ROOT
  prints the ptxas of CUDA 12 and its release, or nothing; WHERE: a path, "auto" or "none", which
  finds nothing"""
import glob
import os
import re
import resource
import subprocess
import sys
import tempfile
import zlib

MAX_INSTANCES = 140
# Of the library with the device code for all architectures; and of a build on two processors, where
# slower machines than the one that was measured have three times as long.
MAX_BYTES, MAX_SECONDS, SLACK = 24 * 10**6, 360, 3
# The first ptxas of CUDA 12 that knows sm_120; the PTX ISA that kernels need (PTX ISA, "Release
# Notes": 8.3 is of CUDA 12.3); and a compression that drivers before CUDA 12.4 read, too.
MIN_ASSEMBLER, PTX_VERSION, COMPRESSION = 8, "8.3", "speed"
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


def assembler(where, root):
    places = [where]
    if where == "auto":
        places = sorted(glob.glob(os.path.join(root, ".venv-cuda", "lib", "python3*",
                                               "site-packages", "nvidia", "cuda_nvcc", "bin",
                                               "ptxas")) +
                        glob.glob("/usr/local/cuda-12*/bin/ptxas"), reverse=True)
    for place in places if where != "none" else []:
        try:
            said = subprocess.run([place, "--version"], capture_output=True, text=True).stdout
        except OSError as error:
            sys.stderr.write(f"{place}: {error}\n")
            continue
        release = re.search(r"release (12\.(\d+))", said)
        if release and int(release.group(2)) >= MIN_ASSEMBLER:
            print(os.path.realpath(place), release.group(1))
            return 0
    if where in ("auto", "none"):
        return 0
    sys.stderr.write(f"{where} is no ptxas of CUDA 12.{MIN_ASSEMBLER} or later 12\n")
    return 1


def targets_in(flags):
    """[(virtual architecture, real ones and PTX's)] of nvcc's -gencode, and the other flags."""
    targets, others, left = [], [], list(flags)
    while left:
        flag = left.pop(0)
        if flag == "-gencode":
            virtual, codes = re.match(r"arch=compute_(\d+),code=\[?([\w,]+)", left.pop(0)).groups()
            targets.append((virtual, codes.split(",")))
        else:
            others.append(flag)
    return targets, others


def run_all(commands):
    """Runs them one after another; stops at the first that fails. All that they said."""
    said = ""
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        said += done.stdout + done.stderr
        if done.returncode != 0:
            break
    return subprocess.CompletedProcess(command, done.returncode, said, "")


def assemble(nvcc, ptxas, flags, kept):
    """What nvcc would do with the flags, but for the assembler. PTX says which version of the
    language it is written in; nvcc names its own, whatever it needs, and older assemblers and
    drivers refuse that: it gets the one that it needs, which the assembler holds it to."""
    fatbin = flags[flags.index("-o") + 1]
    targets, others = targets_in(flags)
    at = others.index("-o")
    others = [flag for flag in others[:at] + others[at + 2:]
              if flag != "-fatbin" and not flag.startswith("--fatbin-options")]
    images = [os.path.join(os.path.dirname(nvcc), "fatbinary"), "-64", f"--create={fatbin}",
              "--compress-all", f"--compress-mode={COMPRESSION}"]
    said = ""
    for virtual, codes in targets:
        stem = os.path.join(kept, f"kernels.compute_{virtual}")
        done = run_all([[nvcc, *others, "-MT", fatbin, "-ptx", f"-arch=compute_{virtual}",
                         "-o", stem + ".ptx"]])
        if done.returncode != 0:
            return done
        write(stem + ".ptx", re.sub(r"^\.version .*$", f".version {PTX_VERSION}",
                                    read(stem + ".ptx"), count=1, flags=re.MULTILINE))
        real = [code[len("sm_"):] for code in codes if code.startswith("sm_")]
        done = run_all([[ptxas, f"-arch=sm_{code}", "-m64", "-v", "--fmad", "false",
                         stem + ".ptx", "-o", f"{stem}.sm_{code}.cubin"] for code in real])
        said += done.stdout
        if done.returncode != 0:
            break
        images += [f"--image3=kind=elf,sm={code},file={stem}.sm_{code}.cubin" for code in real]
        if len(real) < len(codes):
            images.append(f"--image3=kind=ptx,sm={virtual},file={stem}.ptx")
    else:
        done = run_all([images])
        said += done.stdout
    return subprocess.CompletedProcess(images, done.returncode, said, "")


def run_nvcc(nvcc, *flags):
    """Preprocesses, or compiles to a fatbin."""
    ptxas = [flag.split("=", 1)[1] for flag in flags if flag.startswith("--assembler=")]
    flags = [flag for flag in flags if not flag.startswith("--assembler=")]
    if "-c" not in flags:
        return subprocess.run([nvcc, *flags], check=False).returncode
    flags = ["-fatbin" if flag == "-c" else flag for flag in flags]
    with tempfile.TemporaryDirectory() as kept:
        if ptxas:
            done = assemble(nvcc, ptxas[0], flags, kept)
        else:
            done = run_all([[nvcc, *flags, "--ptxas-options=-v", "--keep", "--keep-dir", kept]])
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        sys.stderr.write(f"seconds {spent.ru_utime + spent.ru_stime:.1f}\n"
                         f"{code_sizes(kept, ' '.join(flags))}{done.stdout}")
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
    if instances > MAX_INSTANCES:
        wrong.append(f"{instances} instances, more than {MAX_INSTANCES}")
    if seconds / 2 > MAX_SECONDS * SLACK:
        wrong.append(f"{seconds / 2:.0f} s on two processors, more than {MAX_SECONDS}")
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
    if size > MAX_BYTES:
        wrong.append(f"{library} has {size} bytes, more than {MAX_BYTES}")
    instances, seconds = sums_of(text)
    print(f"{instances} instances, {seconds / 2:.0f} s on two processors, "
          f"{size / 1e6:.1f} MB in the library")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit({"compile": compile_one, "gather": gather, "check": check,
              "assembler": assembler, "nvcc": run_nvcc}[sys.argv[1]](*sys.argv[2:]))
