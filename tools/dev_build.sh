# Build folders, for tools/dev: how they are configured, with or without CUDA's kernels, and built,
# and how a suite of tests is run in one. dev_machine.sh finds and installs what is needed.

# A compilation takes up to a gigabyte: as many at once as memory allows.
jobs() {
  local cores gigabytes
  cores=$(nproc)
  gigabytes=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "$gigabytes" -ge 1 ] || gigabytes=1
  echo $((cores < gigabytes ? cores : gigabytes))
}

# Tests wait about half of their time, for time limits above all: three more at once than there are
# processors.
test_jobs() { echo $(($(jobs) + 3)); }

# configure FOLDER [meson options]
configure() {
  local folder=$1 nvcc compilers
  shift
  need_packages "${build_packages[@]}"
  nvcc=$(find_nvcc)
  [ -z "$nvcc" ] || export PATH="$PATH:${nvcc%/*}"
  compilers="$nvcc $(find_assembler)"
  # A compiler that came or went since the last set-up changes what is built.
  if [ -f "$folder/build.ninja" ]; then
    [ "$(cat "$folder/.nvcc" 2>/dev/null)" != "$compilers" ] || return 0
    meson setup --reconfigure "$folder" "$@"
  else
    meson setup "$folder" "$@"
  fi
  echo "$compilers" >"$folder/.nvcc"
}

# The images of the CUDA kernels take nvcc minutes, and without a GPU nothing runs them. There a new
# build/ begins without them. `test` adds those for sm_90, so that they are compiled once. `build`
# and `setup` add all. build/.images says which there are, if they are not all.
configure_with_images() { # none, sm_90 or all
  local wanted=$1 made options=()
  if [ -z "$(find_nvcc)" ] || [ -n "$(gpu_names)" ]; then wanted=all; fi
  made=$(images_made)
  case "$made, $wanted" in
    'nothing, none') options=(-Dcuda=disabled) ;;
    'nothing, sm_90') options=(-Dkernel_archs=90) ;;
    'none, sm_90') options=(-Dcuda=auto -Dkernel_archs=90) ;;
    'none, all' | 'sm_90, all') options=(-Dcuda=auto -Dkernel_archs=80,90,100,120) ;;
    'nothing, all') ;;
    *) wanted=$made ;;
  esac
  [ "$made" = "$wanted" ] || rm -f build/.nvcc  # so that it is configured anew
  configure build "${options[@]}"
  [ "$wanted" = all ] || echo "$wanted" >build/.images
  [ "$wanted" != all ] || rm -f build/.images
}

images_made() {
  if [ ! -f build/build.ninja ]; then
    echo nothing
  else
    cat build/.images 2>/dev/null || echo all
  fi
}

build_in() {
  local folder=$1
  shift
  ninja -C "$folder" -j "$(jobs)" "$@"
}

# What the kernels are on this machine: the last line of `bench` and `test`.
kernels_line() {
  local nvcc gpu release
  nvcc=$(find_nvcc)
  gpu=$(gpu_names)
  if [ "$(images_made)" = none ]; then
    echo "kernels: host only (those for CUDA take minutes: tools/dev build makes them; no GPU here)"
  elif [ -n "$nvcc" ] && [ -f build/kernels/cuda/images.S ]; then
    release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
    case $(images_made) in
      sm_90) gpu="for sm_90 alone: tools/dev build makes all; no GPU here to run them" ;;
      *) gpu=${gpu:-no GPU here to run them} ;;
    esac
    echo "kernels: host and CUDA (compiled by nvcc $release; $gpu)"
  elif [ -n "$nvcc" ]; then
    echo "kernels: host only (CUDA kernels are not built: -Dcuda=auto; ${gpu:-no GPU})"
  else
    echo "kernels: host only (no CUDA compiler, ${gpu:-no GPU})"
  fi
}

# Is there a test in this suite? Says so plainly if not.
suite_exists() {
  local folder=$1 suite=$2
  if meson test -C "$folder" --list --suite "$suite" 2>/dev/null | grep -q " / "; then return 0; fi
  say "suite $suite: empty, nothing to run"
  return 1
}

run_suite() {
  local folder=$1 suite=$2
  suite_exists "$folder" "$suite" || return 0
  meson test -C "$folder" --no-rebuild --print-errorlogs --suite "$suite"
}
