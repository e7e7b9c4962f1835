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
