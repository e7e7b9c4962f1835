#!/bin/bash
set -euo pipefail
# shellcheck disable=SC2154  # conda's variables
"$PYTHON" tools/package/install_torch.py "$SP_DIR" "$PREFIX/lib"
