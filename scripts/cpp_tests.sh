#!/usr/bin/env bash
# Build and run the C++ unit tests, then fuzz what they test (not under ThreadSanitizer).  usage: scripts/cpp_tests.sh [none|address|thread]
set -euo pipefail
cd "$(dirname "$0")/.."
sanitize=${1:-none}
venv=$(realpath "${VENV:-.venv}")
build="build/cpp-$sanitize"
mkdir -p build
if ! echo '#include <gmock/gmock.h>' | "${CXX:-g++}" -x c++ -E - > /dev/null 2>&1; then
    echo "make test lacks GoogleTest, so the C++ unit tests cannot run; mend: apt-get install libgmock-dev" >&2
    exit 2
fi
torch=$("$venv/bin/python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')
json=$("$venv/bin/python" -c 'from aoti_pack.server.toolchain import nlohmann_include; print(nlohmann_include())')
options=(-DTORCH_DIR="$torch" -DNLOHMANN_JSON_INCLUDE_DIR="$json" -DAOTI_PACK_TESTS=ON
    -DPython3_EXECUTABLE="$venv/bin/python")
if [ "$sanitize" != none ]; then options+=(-DAOTI_PACK_SANITIZE="$sanitize"); fi
PATH="$venv/bin:$PATH"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo "${options[@]}" > "$build.log" 2>&1 || {
    cat "$build.log" >&2
    exit 1
}
cmake --build "$build" -j 2 > "$build.log" 2>&1 || {
    tail -60 "$build.log" >&2
    exit 1
}
ctest --test-dir "$build" --output-on-failure
case $sanitize in
    none) FUZZ_PROFILE=quick ;;
    address) FUZZ_PROFILE=long ;;
    *) exit 0 ;;
esac
AOTI_FUZZ_BUILD="$PWD/$build" FUZZ_PROFILE=$FUZZ_PROFILE "$venv/bin/python" -m pytest -m fuzz tests/fuzz
