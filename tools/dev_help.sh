#!/usr/bin/env bash
# What tools/dev says of itself, and how it reads its words. Each command has a help text, and takes
# the options that this text names: what stands nowhere is refused before anything is done. Sourced
# by tools/dev.

overview() {
  cat <<'HELP'
usage: tools/dev COMMAND [arguments]

  setup            install what the build needs (Debian packages) and configure build/
  build            set up, then build everything or the targets named
  test             build, then run the default tests, or those named
  bench            build, then run a checked all-reduce on two ranks of this machine
  compare          build, then measure all collectives beside Open MPI, MPICH, Intel MPI and Gloo
  train            build, then train a small model on two ranks, on data that is made up
  doctor           what this machine offers, and what each missing thing costs
  asan             the tests under the address and undefined behaviour sanitizers (build-asan/)
  tsan             the tests under the thread sanitizer (build-tsan/)
  fuzz             fuzz every parser of outside bytes (build-fuzz/, clang)
  coverage         which error branches of a subject its tests reach (build-coverage/, clang)
  format           clang-format every source file in place
  lint             clang-tidy on the changed files, then the house suite
  gpu              everything that needs a GPU, and a page of results (build-gpu/)
  torch            PyTorch's backend: its build (build-torch/) and its tests
  torch-upstream   PyTorch's own DistributedTest with Gyre in gloo's place
  torch-matrix     the backend compiled for each PyTorch from 2.6 on
  frameworks       training by PyPI's Accelerate, Transformers, Lightning, DeepSpeed and Ray on Gyre
  vm-test          tests in a virtual machine: RDMA without a NIC, networks that lose and delay
  launchers        jobs on two hosts by mpirun, srun, torchrun, Kubernetes' variables and Ray
  distributions    build and test on Debian 12, 13 and testing, each in a root of its own
  wheels           wheels and source distributions for PyPI (dist/)
  packages         Debian packages for Debian 12, 13 and testing (dist/)
  install-check    what docs/install.md says, in empty systems of Debian, with the times
  nightly          everything: default tests, sanitizers, the suites left out by default, other
                   releases of Debian
  clean            remove build/ and the other build-*/ folders of this script

tools/dev COMMAND --help says more and does nothing else.
HELP
}

help_setup() {
  cat <<'HELP'
usage: tools/dev setup [--cuda] [--nccl]

Installs what the build needs (Debian packages) and configures build/. Elsewhere than on Debian
and its kin it installs nothing, and Meson names what is missing.

  --cuda   also a CUDA compiler if there is none, and an assembler of CUDA 12, whose code older
           drivers load (NVIDIA's wheels, in .venv-cuda)
  --nccl   also the newest NCCL, in .venv-cuda, for bench/gpu.py to compare with

  tools/dev setup --cuda
HELP
}

help_build() {
  cat <<'HELP'
usage: tools/dev build [TARGET...]

Sets up, then builds everything, or the targets named, in build/. `ninja -C build -t targets all`
lists the targets.

  tools/dev build tools/gyre bench/all_reduce_perf
HELP
}

help_test() {
  cat <<'HELP'
usage: tools/dev test [OPTIONS] [TEST...]

Builds everything, then runs the default tests, or the tests named. The options are Meson's; words
after -- go to `meson test` unread.

  --suite NAME          only this suite: unit plans kernels transports collectives faults house,
                        and when named also gpu vm torch soak networks
  --no-suite NAME       not this suite
  --list                name the tests and run none
  --repeat N            run each test N times
  --maxfail N           stop after N failures
  -t, --timeout-multiplier N   allow each test N times its time; 0: no limit
  -j, --num-processes N        so many tests at once; else three more than there are processors,
                        since tests wait for half of their time
  -v, --verbose         show what the tests print
  -q, --quiet           show less
  --gdb                 run the tests in gdb
  --wrapper COMMAND     run the tests under this command, as in --wrapper valgrind
  --test-args WORDS     more arguments for the test programs, as in --test-args="-s"
  --logbase NAME        name of the log in build/meson-logs; default testlog
  --no-stdsplit         do not split stderr and stdout in the log

  tools/dev test --suite unit
  tools/dev test run_test plan_test
HELP
}

help_bench() {
  cat <<'HELP'
usage: tools/dev bench [OPTIONS]

Builds all_reduce_perf, then runs a checked all-reduce on two ranks of this machine. Options
replace the default ones (-b 8 -e 64M -f 2). Words after -- go to all_reduce_perf unread.

  -b, --minbytes SIZE     smallest size (8, 1.5K, 32M, 1G)
  -e, --maxbytes SIZE     largest size
  -f, --stepfactor N      factor between sizes
  -i, --stepbytes SIZE    increment between sizes, if there is no factor
  -n, --iters N           timed iterations of each size
  -w, --warmup_iters N    iterations before them
  -d, --datatype TYPE     float, half, bfloat16, int32, ... or all
  -o, --op OP             sum, prod, max, min, avg, ... or all
  -c, --check N           checked passes of each size; 0: none
  -J, --output_file FILE  also write the results as JSON

Further: -t --nthreads -g --ngpus --device -p --parallel_init -T --timeout -m --agg_iters
-N --run_cycles -a --average -z --blocking -y --stream_null -G --cudagraph -C --report_cputime
-R --local_register --cold --plain_memory -r --root -u --unalign --seed -I --per_iter_timing
-K --per_iter_skip --stats -S --report_timestamps -M --memory --plot -x --cta_policy
-D --device_implementation -V --device_cta_count; `build/bench/all_reduce_perf --help` says what
they mean.

  tools/dev bench -b 1M -e 1M -d bfloat16
HELP
}

help_compare() { python3 bench/compare/compare.py --help; }

help_train() {
  cat <<'HELP'
usage: tools/dev train [-n RANKS] [OPTIONS]

Builds the launcher and the program that trains without a framework, then trains a perceptron on
digits by data parallelism, on two ranks of this machine: made-up digits, or those of Debian's
python3-sklearn where it is installed. The loss goes down, and the exit code is 0. Words after -- go
to the program unread; `build/bench/training/train --help` says what they mean.

  -n RANKS   number of ranks; default 2

  tools/dev train -n 4
  tools/dev train -- --model gpt --parallel zero3 --steps 50
HELP
}

help_doctor() {
  cat <<'HELP'
usage: tools/dev doctor

Prints what this machine offers to Gyre: processors, limits, libraries, hardware and tools. A line
for each, with what its absence costs. It changes nothing.
HELP
}

help_asan() {
  cat <<'HELP'
usage: tools/dev asan

Builds in build-asan/ and runs the default tests, except the house suite, under the address and
undefined behaviour sanitizers. ASAN_OPTIONS and UBSAN_OPTIONS are passed on.

  ASAN_OPTIONS=detect_leaks=0 tools/dev asan
HELP
}

help_tsan() {
  cat <<'HELP'
usage: tools/dev tsan

Builds in build-tsan/ and runs the default tests, except the house suite, under the thread
sanitizer. TSAN_OPTIONS is passed on.

  TSAN_OPTIONS=history_size=7 tools/dev tsan
HELP
}

help_fuzz() {
  cat <<'HELP'
usage: tools/dev fuzz [--seconds N] [TARGET...]
       tools/dev fuzz --coverage | --seeds

Fuzzes every parser of outside bytes, or the targets named, in build-fuzz/ with clang's libFuzzer.
tests/fuzz/README.md describes the targets. Exit code 0 if nothing was found.

  --seconds N   how long to fuzz each target; default 60
  --coverage    instead: which lines of the parsers the committed corpus reaches
  --seeds       instead: write the seeds of the corpus anew, after a format has changed

  tools/dev fuzz --seconds 600 message
HELP
}

help_coverage() {
  cat <<'HELP'
usage: tools/dev coverage [SUBJECT...]

Builds the tests of a subject in build-coverage/ with clang, runs them, and prints which error
branches of each source they reached: where a failure is made. In parentheses are lines where none
was passed on. The exit code is 0 if all branches were reached and no test failed.

  rdma   transports/rdma, and what lib/loaded has of libibverbs

Without a subject it does all of them.

  tools/dev coverage rdma
HELP
}

help_format() {
  cat <<'HELP'
usage: tools/dev format

Formats every C, C++ and CUDA source file in place, by clang-format and .clang-format.
HELP
}

help_lint() {
  cat <<'HELP'
usage: tools/dev lint [--all]

Compiles each source alone in build-lint/ (build/ compiles a room's sources eight at a time), then
runs clang-tidy on the C++ files that differ from the main branch, and the house suite.

  --all   clang-tidy on every C++ file

  tools/dev lint --all
HELP
}

help_gpu() { python3 tools/gpu_parts.py --help; }

help_torch() {
  cat <<'HELP'
usage: tools/dev torch [OPTIONS] [PYTEST OPTIONS] [PATH...]

Builds the backend for PyTorch (build-torch/) and runs its tests. PyTorch is Debian's newest: the
first call downloads 300 MB and unpacks them into ~/.cache/gyre-torch; nothing is installed.

  --smoke             only the tests that take a minute together
  --wheel[=VERSION]   PyTorch's wheel from PyPI instead, of this version or the newest (some GB)
  --release=NAME      the PyTorch of this release of Debian instead: trixie has 2.6
  --prepare           instead of the tests: downloads and unpacks PyTorch
  --shell             instead of the tests: a shell in which `python` and `torchrun` have it

Of pytest: -k EXPRESSION, -m MARKS, -x, --maxfail=N, -v, -q, -s, -l, -r CHARACTERS, --lf, --ff,
--durations=N, --tb=STYLE, --pdb, --collect-only. Words after -- go to pytest unread.

  tools/dev torch -k all_gather
  tools/dev torch tests/torch/ddp_test.py
HELP
}

help_torch_upstream() {
  python3 tests/torch/upstream.py --help
  cat <<'HELP'

PyTorch is Debian's newest, as in tools/dev torch.
  --wheel[=VERSION]  PyTorch's wheel from PyPI instead, of this version or the newest (some GB)
  --release=NAME     the PyTorch of this release of Debian instead: trixie has 2.6

  tools/dev torch-upstream --both -k broadcast
  tools/dev torch-upstream --release=trixie --both --files
  tools/dev torch-upstream --files=pytorch/test/distributed
HELP
}

help_torch_matrix() {
  cat <<'HELP'
usage: tools/dev torch-matrix [--run] [RELEASE...]

Compiles the backend with the headers of PyTorch 2.6, 2.8, 2.10 and each from 2.12 on, or of the
releases named. The first call brings their wheels from PyPI (2 GB) and keeps the headers (0.5 GB)
in ~/.cache/gyre-torch/headers.

  --run   then runs the tests of DDP, FSDP and faults on PyTorch 2.6 (Debian 13), on that of Debian
          testing, and on the newest of PyPI (some GB)

  tools/dev torch-matrix 2.6.0 2.15.0
HELP
}

help_packages() { python3 tools/package/packages.py --help; }

help_install_check() { python3 tools/package/install_check.py --help; }

help_wheels() { python3 tools/package/wheels.py --help; }

help_frameworks() {
  cat <<'HELP'
usage: tools/dev frameworks [OPTIONS] [PYTEST OPTIONS] [PATH...]

Programs of PyPI's Accelerate, Transformers (Trainer), Lightning, DeepSpeed (ZeRO 1 to 3) and Ray
Train, which know nothing of Gyre, train on gloo and on Gyre. The losses have to be the same, a step
has to take no longer, and the error of a killed rank has to reach the screen.

The first call brings PyTorch as tools/dev torch does, and the frameworks from PyPI (0.8 GB) into a
virtual environment beside it, in ~/.cache/gyre-torch. A test skips itself if its framework cannot
be downloaded. It takes 20 minutes; -k losses is the shortest part.

  --wheel[=VERSION]   PyTorch's wheel from PyPI instead, of this version or the newest (some GB)
  --release=NAME      the PyTorch of this release of Debian instead

Of pytest: -k EXPRESSION, -x, -v, -s, -r CHARACTERS. Words after -- go to pytest unread.

  tools/dev frameworks -k "lightning and losses"
HELP
}

help_distributions() {
  cat <<'HELP'
usage: tools/dev distributions [NAME...] [OPTIONS] [-- ARGUMENTS of meson test]

Builds Gyre and runs its default tests on other releases of Debian: debian-12, debian-13 and
debian-testing, or those named. Ubuntu 24.04 has no root here and is unproven.

  --cxx COMPILER   g++-13, clang++-19, ...; its package is installed in the root; default: the
                   release's g++
  --build-only     build everything, run no test
  --mirror URL     where packages come from; default: the mirror of this machine's apt
  --minutes N      limit for a build, and for a run of tests; default 120

debootstrap makes each root in ~/.cache/gyre/roots; later calls upgrade it. This needs root. The
exit code is 0 if all was built without a warning and no test failed, and 77 if roots cannot be
made here.

  tools/dev distributions debian-13
  tools/dev distributions debian-13 --cxx clang++-19 --build-only
  tools/dev distributions debian-testing -- --suite unit plans
HELP
}

help_launchers() {
  cat <<'HELP'
usage: tools/dev launchers

Runs the lines of docs/operations.md that start a job on several hosts, on two hosts made of network
namespaces: by mpirun of Open MPI 4 and 5, MPICH and Intel MPI, by srun on a Slurm of two nodes that
it starts, by torchrun, by hand, with the variables of Kubernetes, and on a Ray cluster. All have to
learn the same bits. Then one command in a fresh clone trains, and the steps of
docs/examples/Containerfile are run in roots that debootstrap makes.

It installs the launchers: Debian's packages, and wheels of PyPI (1 GB) in ~/.cache/gyre/launchers.
torchrun is that of tools/dev torch, after its first call. All but the clone needs root.
What is not there is skipped, with the reason.
HELP
}

help_vm_test() { python3 tests/vm/vm_test.py --help; }

help_nightly() {
  cat <<'HELP'
usage: tools/dev nightly

Runs everything, which takes hours: the default tests, the suites gpu, soak and
networks, lint, torch, torch-matrix --run, frameworks, torch-upstream with 2, 3 and 4 ranks,
fuzz, asan, tsan, vm-test, launchers, distributions, wheels, packages, and install-check.
HELP
}

help_clean() {
  cat <<'HELP'
usage: tools/dev clean

Removes what this script has built: build/, build-lint/, build-asan/, build-tsan/,
build-fuzz/, build-coverage/, build-gpu/, build-torch/ and dist/.
HELP
}

# --- reading words -------------------------------------------------------------------------------

commands() { declare -F | sed -n 's/^declare -f command_//p' | sed 'y/_/-/'; }
help_of() { "help_${1//-/_}"; }
options_in() { grep -oE -- '(^|[ ,[])--?[a-zA-Z][a-zA-Z0-9_-]*' <<<"$1" | sed 's/^[ ,[]//'; }

refuse() {
  printf 'tools/dev: %s\n' "$*" >&2
  exit 2
}

# suggest WORD OTHERWISE CANDIDATE...: "did you mean X?" of the candidate with the fewest edits, if
# they are few: letters that are added, left out, replaced, or two in the wrong order.
suggest() {
  printf '%s\n' "$@" | awk '
    function least(a, b) { return a < b ? a : b }
    NR == 1 { word = $0; most = int(length(word) / 3) + 1; next }
    NR == 2 { answer = $0; next }
    {
      for (i = 0; i <= length(word); ++i) edits[i, 0] = i
      for (j = 0; j <= length($0); ++j) edits[0, j] = j
      for (i = 1; i <= length(word); ++i)
        for (j = 1; j <= length($0); ++j) {
          a = substr(word, i, 1)
          b = substr($0, j, 1)
          n = least(edits[i - 1, j] + 1, edits[i, j - 1] + 1)
          n = least(n, edits[i - 1, j - 1] + (a != b))
          if (i > 1 && j > 1 && a == substr($0, j - 1, 1) && b == substr(word, i - 1, 1))
            n = least(n, edits[i - 2, j - 2] + 1)
          edits[i, j] = n
        }
      if (n < most) { most = n; answer = "did you mean " $0 "?" }
    }
    END { print answer }'
}

check_option() { # check_option COMMAND WORD OPTION...
  local command=$1 word=$2 name=${2%%=*}
  shift 2
  [[ $word != --* ]] || [[ " $* " != *" $name "* ]] || return 0
  # A value may follow a letter at once, as in -j4.
  [[ $word == --* ]] || [[ " $* " != *" ${word:0:2} "* ]] || return 0
  refuse "$command has no option $name; $(suggest "$name" "see tools/dev $command --help" "$@")"
}

# read_words COMMAND ARGUMENT...: leaves the arguments in `words`. Ends the process after --help,
# and if the command does not take a word. Words after -- are not looked at.
# shellcheck disable=SC2034  # the caller's
read_words() {
  local command=$1 word text options place=0
  shift
  for word in "$@"; do
    case $word in
      --) break ;;
      -h | --help)
        help_of "$command"
        exit
        ;;
    esac
  done
  words=("$@")
  text=$(help_of "$command")
  mapfile -t options < <(options_in "$text")
  for word in "$@"; do
    case $word in
      --)
        # A usage that shows them gets them.
        [[ ${text%%$'\n'*} == *"[-- "* ]] || words=("${@:1:place}" "${@:place+2}")
        return
        ;;
      *' '* | - | -[0-9]*) ;; # a value
      -*) check_option "$command" "$word" "${options[@]}" ;;
      *) [[ ${text%%$'\n'*} =~ [A-Z] ]] || refuse "$command takes no \"$word\"" ;;
    esac
    place=$((place + 1))
  done
}
