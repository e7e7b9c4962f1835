# The backend for each PyTorch, for tools/dev.

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
