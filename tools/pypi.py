"""Brings launchers and MPIs that PyPI has, each into a virtual environment of its own, as several
of them bring an mpirun. pypi.py PACKAGE... A package that cannot be had is said and left out:
what needs it skips itself."""
import os
import shutil
import subprocess
import sys

FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "gyre",
                      "launchers")
MINUTES = 10


def place_of(name):
    return os.path.join(FOLDER, name)


def is_there(name):
    return os.path.exists(os.path.join(place_of(name), "complete"))


def bring(name):
    if is_there(name):
        return
    place = place_of(name)
    print(f"== PyPI's {name}, into {place}", file=sys.stderr, flush=True)
    os.makedirs(FOLDER, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=60 * MINUTES)
        subprocess.run([os.path.join(place, "bin", "pip"), "install", "--quiet",
                        "--disable-pip-version-check", name], check=True, timeout=60 * MINUTES,
                       stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as failed:
        print(f"== not to be had: {failed}", file=sys.stderr, flush=True)
        return
    open(os.path.join(place, "complete"), "w", encoding="ascii").close()


if __name__ == "__main__":
    for package in sys.argv[1:]:
        bring(package)
