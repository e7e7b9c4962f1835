"""with_mps.py COMMAND...: runs COMMAND while NVIDIA's Multi-Process Service serves this user's GPU,
so that kernels of its processes run side by side. It starts an MPS server with pipes in a temporary
folder, and ends it with the command. Exit code: the command's; 77 if there is no MPS; 1 if it does
not start."""
import os
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # as Meson takes it
CONTROL = "nvidia-cuda-mps-control"


def main(command):
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if shutil.which(CONTROL) is None:
        print(f"with_mps.py: there is no {CONTROL}: it comes with NVIDIA's driver",
              file=sys.stderr)
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": os.path.join(folder, "pipes"),
                     "CUDA_MPS_LOG_DIRECTORY": os.path.join(folder, "log")}
        for name in ("pipes", "log"):
            os.mkdir(os.path.join(folder, name))
        begun = subprocess.run([CONTROL, "-d"], env=variables, stdin=subprocess.DEVNULL,
                               timeout=60, check=False)
        if begun.returncode != 0:
            print(f"with_mps.py: {CONTROL} -d ended with code {begun.returncode}", file=sys.stderr)
            return 1
        try:
            return subprocess.run(command, env=variables, check=False).returncode
        except OSError as error:
            print(f"with_mps.py: {error}", file=sys.stderr)
            return 1
        finally:
            subprocess.run([CONTROL], env=variables, input="quit\n", text=True, timeout=60,
                           check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
