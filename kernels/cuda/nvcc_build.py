"""Compiles one file of kernels with nvcc, gathers what all of them came to, or checks it.

nvcc_build.py compile OBJECT NOTES DEPFILE NVCC FLAGS.. SOURCE
  NOTES   gets the seconds of processor time it took, and what ptxas says of each kernel
nvcc_build.py report LIBRARY REPORT (OBJECT NOTES)..
  REPORT  gets the kernels with their registers, spills, code and ptxas's time, each file's time and
          size, and the sums, which are printed; exit code 1 if they break a limit
nvcc_build.py check REPORT NVCC FLAGS.. SOURCE
  compiles SOURCE: exit code 1 if a kernel in it spills that must not, or if there is a REPORT
  already that breaks a limit"""
import glob
import os
import re
import resource
import subprocess
import sys
import tempfile

INSTANCES_MOST = 140
# Of device code for all architectures, in the library; and of a build on two processors.
MIB_MOST, SECONDS_MOST = 24, 360
NEVER_SPILL = ("Float32", "Float16", "BFloat16")
PROTOCOLS = {"6Simple": "simple", "7LlLines": "ll", "10Ll128Lines": "ll128"}


def compile_one(object_file, notes, depfile, nvcc, *rest):
    *flags, source = rest
    with tempfile.TemporaryDirectory() as kept:
        done = subprocess.run([nvcc, *flags, "-Xptxas", "-v", "--keep", "--keep-dir", kept, "-MD",
                               "-MF", depfile, "-c", source, "-o", object_file],
                              capture_output=True, text=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = done.stdout + done.stderr
        if done.returncode != 0 or "warning" in said:
            sys.stderr.write("\n".join(line for line in said.split("\n")
                                       if "ptxas info" not in line))
        with open(notes, "w", encoding="utf-8") as file:
            file.write(f"seconds {spent.ru_utime + spent.ru_stime:.1f}\n"
                       f"{code_sizes(kept, ' '.join(flags))}{said}")
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
        protocol = next(word for key, word in PROTOCOLS.items() if key in symbol)
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


def faults(kernels):
    """Kernels that spill and must not."""
    return [f"spills: {' '.join(str(word) for word in kernel[:5])}" for kernel in kernels
            if kernel[4] > 0 and kernel[1] == "simple" and kernel[0].split("_")[0] in NEVER_SPILL]


def over_limits(text, slack):
    """What the sums of a report say that no build should; slower machines have more time."""
    found = re.search(r"(\d+) instances, .* (\d+) s of a processor, ([\d.]+) MiB", text)
    if found is None:
        return ["a report without sums"]
    instances, seconds, mib = int(found.group(1)), float(found.group(2)), float(found.group(3))
    wrong = []
    if instances > INSTANCES_MOST:
        wrong.append(f"{instances} instances, more than {INSTANCES_MOST}")
    if seconds / 2 > SECONDS_MOST * slack:
        wrong.append(f"{seconds / 2:.0f} s on two processors, more than {SECONDS_MOST}")
    if mib > MIB_MOST:
        wrong.append(f"{mib} MiB, more than {MIB_MOST}")
    return wrong + re.findall(r"^spills: .*", text, re.MULTILINE)


def report(library, report_file, *parts):
    objects, all_notes = parts[::2], parts[1::2]
    if os.path.exists(library):
        os.remove(library)
    subprocess.run(["ar", "rcs", library, *objects], check=True)
    kernels, files, seconds = [], [], 0.0
    for path, built in zip(all_notes, objects):
        notes, name = read(path), os.path.basename(path)[:-len(".txt")]
        took = float(re.match(r"seconds ([\d.]+)", notes).group(1))
        files.append(f"{name:20s} {took:5.1f} s {os.path.getsize(built) / 1024:6.0f} KiB")
        seconds += took
        kernels += kernels_in(name, notes)
    lines = [f"{name:20s} {protocol:7s} {target:8s} {registers:4d} registers {spilled:5d} B "
             f"spilled {code / 1024:6.1f} KiB of code {ms:7.0f} ms in ptxas"
             for name, protocol, target, registers, spilled, code, ms in sorted(kernels)]
    lines += files + faults(kernels)
    instances = len({kernel[:2] for kernel in kernels})
    spilling = sum(kernel[4] > 0 for kernel in kernels)
    mib = sum(os.path.getsize(path) for path in objects) / 2**20
    lines.append(f"{instances} instances, {len(kernels)} kernels over all architectures of which "
                 f"{spilling} spill, {seconds:.0f} s of a processor, {mib:.1f} MiB")
    text = "\n".join(lines) + "\n"
    with open(report_file, "w", encoding="utf-8") as file:
        file.write(text)
    print(lines[-1])
    wrong = over_limits(text, 3)
    print("\n".join(wrong))
    return 1 if wrong else 0


def check(report_file, nvcc, *rest):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        notes = os.path.join(folder, "notes")
        if compile_one(os.path.join(folder, "object.o"), notes, os.path.join(folder, "depfile"),
                       nvcc, *rest) != 0:
            return 1
        name = os.path.basename(rest[-1])[:-len(".cc")]
        kernels = kernels_in(name, read(notes))
        for kernel in kernels:
            print(*kernel)
        if not kernels or any(kernel[5] == 0 for kernel in kernels):
            wrong.append("ptxas tells of no kernels, or readelf not of their code")
        wrong += faults(kernels)
    if os.path.exists(report_file):
        wrong += over_limits(read(report_file), 3)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit({"compile": compile_one, "report": report, "check": check}[sys.argv[1]](*sys.argv[2:]))
