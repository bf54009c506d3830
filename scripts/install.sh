#!/usr/bin/env bash
# Make (or bring up to date) the virtual environment that everything runs in. Used by the Makefile, by CI and
# by the Dockerfile, so that all three install the same way.
#   usage: scripts/install.sh [EXTRAS]      e.g. scripts/install.sh test
#   environment: VENV (default .venv), PYTHON (default python3), TORCH (default torch==2.13.0; any version
#   from 2.11 on works, with or without CUDA)
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1:-test}
venv=${VENV:-.venv}
python=${PYTHON:-python3}
# Ubuntu 22.04 has 3.11 beside its own 3.10.
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && command -v python3.11 > /dev/null; then
    python=python3.11
fi
torch=${TORCH:-torch==2.13.0}

"$python" - <<'PY' || exit 2
import sys
if sys.version_info < (3, 11):
    sys.exit(f"aoti-pack needs Python 3.11 or newer, this is {sys.version.split()[0]}; set PYTHON=python3.11")
PY

# The stamp holds what was installed: a change of any of it installs again, a rerun costs nothing.
wanted="$("$python" --version) $torch [$extras] $(sha256sum pyproject.toml | cut -d' ' -f1)"
stamp="$venv/.aoti-pack-installed"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || {
        echo "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2
        exit 2
    }
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$torch" hatchling editables
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation -e ".[$extras]"
echo "$wanted" > "$stamp"
