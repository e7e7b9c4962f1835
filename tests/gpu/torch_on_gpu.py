"""torch_on_gpu.py BUILD [pytest arguments]: PyTorch's tensors on a GPU, by the libgyre of a build
folder and the PyTorch of this Python. Exit code 77 if there is none with CUDA and pytest; what
PyTorch has needs a compiler, unless BUILD/site has the backend compiled for it."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77  # as Meson takes it
TESTS = ("tests/gpu/torch", "tests/torch/devices/device_collectives_test.py")


def lacking():
    try:
        import pytest  # noqa: F401  pylint: disable=unused-import,import-outside-toplevel
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        return str(error)
    return "" if torch.cuda.is_available() else f"PyTorch {torch.__version__} finds no GPU"


def joined(*folders, before=""):
    return os.pathsep.join([*folders, *filter(None, [before])])


def main(build, arguments):
    if why := lacking():
        print(f"torch_on_gpu.py: {why}", file=sys.stderr)
        return SKIPPED
    environment = {
        **os.environ, "USE_LIBUV": "0", "GYRE_SOCKET_IFNAME": "lo",
        "LD_LIBRARY_PATH": joined(os.path.join(build, "lib", "api"),
                                  before=os.environ.get("LD_LIBRARY_PATH", "")),
        "PKG_CONFIG_PATH": os.path.join(build, "meson-uninstalled"),
        "PYTHONPATH": joined(os.path.join(build, "site"), os.path.join(ROOT, "tools", "pytorch"),
                             os.path.join(ROOT, "tests", "torch"))}
    os.chdir(ROOT)
    os.execve(sys.executable, [sys.executable, "-m", "pytest", "-c", "tests/torch/pytest.ini",
                               *TESTS, *arguments], environment)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2:]))
