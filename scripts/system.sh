#!/usr/bin/env bash
# The system packages, by name, for Debian and Ubuntu: a C++ compiler (AOTInductor needs it as well), make,
# Python's venv and development library, GoogleTest for the C++ tests. Needs root; installs what is missing.
set -euo pipefail
wanted=(g++ make python3-venv libgtest-dev)
missing=()
for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
