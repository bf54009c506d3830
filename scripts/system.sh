#!/usr/bin/env bash
# The system packages, by name, for Debian and Ubuntu: a C++ compiler (AOTInductor needs it as well), git, make,
# Python with venv and its shared library (Triton's Python backend loads it), GoogleTest and GoogleMock for the C++
# tests. Needs root; installs what is missing.
set -euo pipefail
wanted=(g++ git make libgmock-dev)
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
    # A Python from elsewhere (pyenv, an image's own) brings both itself.
    if [ "$(command -v python3)" = /usr/bin/python3 ]; then wanted+=(python3-venv libpython3-dev); fi
elif [ "$(. /etc/os-release && echo "$ID$VERSION_ID")" = ubuntu22.04 ]; then
    wanted+=(python3.11 python3.11-venv libpython3.11-dev)
else
    wanted+=(python3 python3-venv libpython3-dev)
fi
missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
