#!/usr/bin/env bash
# What this machine has and lacks, for tools/dev: Debian's packages, the CUDA compiler, GPUs; and
# how the missing is installed. Sourced by tools/dev, which has the lists of packages.

is_debian() { command -v dpkg-query >/dev/null 2>&1; }

missing_packages() {
  local installed package
  # shellcheck disable=SC2016  # the braces are dpkg-query's
  installed=$(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    grep -qE "^${package//+/\\+}(:[a-z0-9]+)? installed$" <<<"$installed" || printf '%s ' "$package"
  done
}

# Elsewhere than on Debian and its kin, Meson says what it misses. Of two commands at one time, one
# installs after the other: apt would refuse the second.
need_packages() {
  is_debian || return 0
  (
    flock 9
    install_packages "$@" 9>&-  # what it starts does not keep the lock
  ) 9>>"${TMPDIR:-/tmp}/gyre-packages-$(id -u).lock" || exit
}

install_packages() {
  local missing as_root=()
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null; then
      as_root=(sudo -n)
    else
      printf 'tools/dev: these packages are missing; run this line once, then call again:\n' >&2
      printf '  sudo apt-get update && sudo apt-get install -y %s\n' "$missing" >&2
      exit 1
    fi
  fi
  say "installing $missing"
  "${as_root[@]}" apt-get update -q </dev/null || fail "apt-get update failed"
  # shellcheck disable=SC2086  # a list of words
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends $missing </dev/null ||
    fail "apt-get could not install: $missing"
}

# What only some tests need, which skip themselves and say so where it is missing.
want_packages() {
  local missing
  is_debian || return 0
  missing=$(missing_packages "$@")
  if [ -n "$missing" ] && [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
    say "some tests skip themselves without these packages: $missing"
  else
    need_packages "$@"
  fi
}

# The CUDA compiler of this machine, if there is one.
find_nvcc() {
  local place
  for place in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    .venv-cuda/lib/python3*/site-packages/nvidia/cu1*/bin/nvcc; do
    if [ -x "$place" ]; then
      readlink -f "$place"
      return
    fi
  done
}

gpu_names() {
  { cat /proc/driver/nvidia/gpus/*/information 2>/dev/null || true; } |
    sed -n 's/^Model:[[:space:]]*//p' | sort | uniq -c |
    awk '{ $1 = ($1 > 1) ? $1 " x" : ""; sub(/^ /, ""); print }' | paste -sd, -
}

# Into .venv-cuda, where the build looks for them.
install_wheels() {
  need_packages python3 python3-venv
  say "installing NVIDIA's wheels into .venv-cuda: $*"
  [ -x .venv-cuda/bin/pip ] || python3 -m venv .venv-cuda
  .venv-cuda/bin/pip install --quiet --disable-pip-version-check "$@" ||
    fail "pip could not bring the wheels"
}

# The assembler of CUDA 12, for an nvcc of CUDA 13.
find_assembler() { python3 kernels/cuda/nvcc_build.py assembler auto "$PWD" 2>/dev/null || true; }

install_cuda() {
  local nvcc
  [ -n "$(find_nvcc)" ] ||
    install_wheels 'nvidia-cuda-nvcc>=13' 'nvidia-cuda-runtime>=13' 'nvidia-cuda-cccl>=13'
  nvcc=$(find_nvcc)
  [ -n "$nvcc" ] || fail "the wheels hold no nvcc for this machine ($(uname -m))"
  say "CUDA compiler: $nvcc"
  "$nvcc" --version | grep -q 'release 1[3-9]' || return 0
  [ -n "$(find_assembler)" ] || install_wheels 'nvidia-cuda-nvcc-cu12>=12.8'
  say "assembler of CUDA 12: $(find_assembler)"
}
