# Everything runs in a virtual environment of the project's own, which each target makes when it is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
export VENV ?= .venv
export TORCH ?= torch==2.13.0
BIN := $(VENV)/bin

.PHONY: demo test test-python test-cpp lint format sanitize bench soak model-repo clean venv

# From nothing to ten titles recommended by a real Triton server, on real ratings.
demo: venv
	$(BIN)/aoti-pack demo $(ARGS)

# Everything that CI checks: style, types, the C++ unit tests, the Python tests with a real server.
test: lint test-cpp test-python

test-python: venv
	$(BIN)/python -m pytest $(ARGS)

test-cpp: venv
	scripts/cpp_tests.sh none

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find cpp -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run --Werror

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find cpp -name '*.cc' -o -name '*.h' | xargs $(BIN)/clang-format -i

# The C++ unit tests and many examples of the fuzz tests under AddressSanitizer with UndefinedBehaviorSanitizer,
# then the unit tests under ThreadSanitizer.
sanitize: venv
	scripts/cpp_tests.sh address
	scripts/cpp_tests.sh thread

# The comparison of `make demo` alone, longer: our backend against the Python twin, interleaved.
bench: venv
	$(BIN)/aoti-pack demo --seconds 10 --rounds 5 --json build/bench.json $(ARGS)

# Build the packages of the shipped model repository into place.
model-repo: venv
	$(BIN)/aoti-pack compile aoti_pack.models.hstu:recipe -o build/hstu_tiny
	$(BIN)/aoti-pack package build/hstu_tiny --repo model_repo --name hstu_tiny

# Ten minutes (SOAK_SECONDS) of inference, malformed requests and reloads against a real server.
soak: venv
	$(BIN)/python -m pytest -m soak $(ARGS)

clean:
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)

venv:
	@scripts/install.sh test
