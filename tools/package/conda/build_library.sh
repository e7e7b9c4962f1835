#!/bin/bash
set -euo pipefail
# shellcheck disable=SC2086,SC2154  # conda's variables
meson setup build ${MESON_ARGS:-} --prefix="$PREFIX" -Dlibdir=lib -Dtests=false -Dcuda=disabled \
  -Dhwloc=enabled -Dverbs=enabled
ninja -C build -j"$CPU_COUNT"
meson install -C build --no-rebuild
