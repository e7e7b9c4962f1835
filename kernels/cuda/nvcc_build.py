"""Compiles one file of kernels with nvcc, or gathers what all of them came to.

nvcc_build.py compile OBJECT NOTES DEPFILE NVCC FLAGS.. SOURCE
  NOTES   gets the seconds it took, and what ptxas says of each kernel
nvcc_build.py report LIBRARY REPORT (OBJECT NOTES)..
  REPORT  gets the kernels with their registers and spills, the time and the size, and is printed;
          exit code 1 if a kernel of `simple` for float, half or bfloat16 spills"""
import os
import re
import subprocess
import sys
import time

INSTANCES_MOST = 140
NEVER_SPILL = ("Float32", "Float16", "BFloat16")
PROTOCOLS = {"6Simple": "simple", "7LlLines": "ll", "10Ll128Lines": "ll128"}


def compile_one(object_file, notes, depfile, nvcc, *rest):
    begin = time.monotonic()
    done = subprocess.run([nvcc, *rest[:-1], "-Xptxas", "-v", "-MD", "-MF", depfile, "-c", rest[-1],
                           "-o", object_file], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode != 0 or "warning" in said:
        sys.stderr.write("\n".join(line for line in said.split("\n") if "ptxas info" not in line))
    with open(notes, "w", encoding="utf-8") as file:
        file.write(f"seconds {time.monotonic() - begin:.1f}\n{said}")
    sys.exit(done.returncode)


def kernels_in(name, notes):
    """[(row, protocol, architecture, registers, bytes spilled)]"""
    found = []
    for block in notes.split("Compiling entry function")[1:]:
        symbol, target = re.match(r" '(\w+)' for '(\w+)'", block).groups()
        protocol = next(word for key, word in PROTOCOLS.items() if key in symbol)
        spilled = sum(int(count) for count in re.findall(r"(\d+) bytes spill", block))
        found.append((name, protocol, target, int(re.search(r"Used (\d+) registers",
                                                            block).group(1)), spilled))
    return found


def report(library, report_file, *parts):
    objects, all_notes = parts[::2], parts[1::2]
    if os.path.exists(library):
        os.remove(library)
    subprocess.run(["ar", "rcs", library, *objects], check=True)
    kernels, seconds = [], 0.0
    for path in all_notes:
        with open(path, encoding="utf-8") as file:
            notes = file.read()
        seconds += float(re.match(r"seconds ([\d.]+)", notes).group(1))
        kernels += kernels_in(os.path.basename(path)[:-len(".txt")], notes)
    instances = {(name, protocol) for name, protocol, *_ in kernels}
    spilling = [kernel for kernel in kernels if kernel[4] > 0]
    lines = [f"{name:20s} {protocol:7s} {target:8s} {registers:4d} registers {spilled:5d} B spilled"
             for name, protocol, target, registers, spilled in sorted(kernels)]
    size = sum(os.path.getsize(path) for path in objects)
    lines += [f"{len(instances)} instances, {len(kernels)} kernels over all architectures, "
              f"{len(spilling)} of which spill",
              f"{seconds:.0f} s of nvcc, {size / 2**20:.1f} MiB of objects"]
    with open(report_file, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print("\n".join(lines[-2:]))
    bad = [kernel for kernel in spilling
           if kernel[1] == "simple" and kernel[0].split("_")[0] in NEVER_SPILL]
    for kernel in bad:
        print("spills:", *kernel)
    if len(instances) > INSTANCES_MOST:
        print(f"more than {INSTANCES_MOST} instances")
    sys.exit(1 if bad or len(instances) > INSTANCES_MOST else 0)


if __name__ == "__main__":
    {"compile": compile_one, "report": report}[sys.argv[1]](*sys.argv[2:])
