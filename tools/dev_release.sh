# What people install, for tools/dev: wheels, and the backend for each PyTorch.

command_wheels() {
  need_packages python3 python3-venv meson ninja-build pkg-config make dpkg-dev libcli11-dev \
    libfmt-dev nlohmann-json3-dev libibverbs-dev debian-archive-keyring
  python3 tools/package/wheels.py "$@"
}

# Compiles for all releases, then runs the oldest, Debian's newest and PyPI's newest.
command_torch_matrix() {
  local word run=false code=0 which
  local tests=(tests/torch/ddp_test.py tests/torch/sharding_test.py tests/torch/faults_test.py)
  for word in "$@"; do
    shift
    if [ "$word" = --run ]; then run=true; else set -- "$@" "$word"; fi
  done
  need_packages g++ python3-pip python3-dev
  python3 tools/pytorch/matrix.py "$@" || code=1
  ! $run || for which in --release=trixie --release=forky --wheel; do
    say "tools/dev torch $which ${tests[*]}"
    tools/dev torch "$which" "${tests[@]}" || code=1
  done
  return "$code"
}

command_packages() {
  want_packages debootstrap debian-archive-keyring util-linux
  python3 tools/package/packages.py "$@"
}

command_install_check() {
  want_packages debootstrap debian-archive-keyring util-linux
  python3 tools/package/install_check.py "$@"
}

# The programs of tests/frameworks, on a Python that has PyPI's frameworks on top of PyTorch.
command_frameworks() {
  local wheel rest bin folder
  take_wheel "$@"
  enter_torch "${wheel[@]}"
  folder=$(dirname "$(dirname "$(command -v python)")")/frameworks
  bin=$(python tools/pytorch/frameworks.py "$folder") || fail "there is no place for the frameworks"
  export PATH="$bin:$PATH"
  python -m pytest -c tests/torch/pytest.ini --junitxml=build-torch/results-frameworks.xml \
    tests/frameworks "${rest[@]}"
}
