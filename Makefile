# Everything a contributor runs. Needs make, a C++ compiler and Python 3.9 with venv; CMake, Ninja and
# the Python packages are fetched into .venv. `make` alone lists the targets.

PYTHON ?= python3
CXX ?= g++
VENV := .venv
READY := $(VENV)/.ready
ZIG := $(VENV)/.zig
HELPER := reachscan/_native/reachscan-helper
MACHINE := $(shell uname -m)
OTHERS := $(filter-out $(MACHINE),aarch64 armv7)
SHIPPED := $(CURDIR)/reachscan/_native/helpers
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# The compiler as a variable of the environment: CMake forgets all other options when it changes.
CMAKE := CXX=$(CXX) cmake -G Ninja -S native
# One tree for all that this processor runs: what differs between its uses is linked anew, not compiled.
NATIVE_TREE := build/native
NATIVE = $(CMAKE) -B $(NATIVE_TREE) -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=$(PREFIX) \
  '-USKBUILD*' -UREACHSCAN_HELPER
# Its output matters only if it fails.
QUIETLY = >build/cmake.log || { cat build/cmake.log; exit 1; }
PYTHON_SOURCES := reachscan tests benchmarks
NATIVE_SOURCES = $(shell find native fixtures benchmarks -name '*.[ch]' -o -name '*.[ch]pp')

# The helper is static, so one wheel serves every C library.
DIST ?= dist
WHEEL_TAGS := $(foreach tag,manylinux2014 manylinux_2_17 musllinux_1_1,$(tag)_$(MACHINE))

PREFIX ?= /usr/local

# Tests at once: they wait a lot. Many more than four disturb each other's busy targets.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))

CLANGXX ?= clang++
FUZZ_TARGETS ?= fuzz_walker fuzz_elf fuzz_types fuzz_core fuzz_proc_files fuzz_sweep_check
FUZZ_SECONDS ?= 300

.DEFAULT_GOAL := help
.PHONY: help build helpers demo test wheel install fuzz lint format bench clean prerequisites clang-format
.PHONY: $(addprefix helper-,$(MACHINE) $(OTHERS)) $(addprefix images-,$(MACHINE) $(OTHERS))

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: $(READY)  ## build the native helper and install reachscan into .venv
	@$(NATIVE) -DREACHSCAN_DEV_OUTPUT=$(CURDIR)/reachscan/_native $(QUIETLY)
	@cmake --build $(NATIVE_TREE)
	@test -x $(HELPER)

CMAKE_HELPER = cmake -G Ninja -S native -DCMAKE_BUILD_TYPE=Release -DREACHSCAN_ONLY_HELPER=ON
# The distribution's compilers for another processor.
CROSS = -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/arch/$*/toolchain.cmake

ifdef SMALL
# They are linked with musl, which is half a megabyte less. The distribution's compilers make what they embed,
# which needs no C library.
HELPERS ?= $(MACHINE) $(OTHERS)
HELPER_TREE = build/small/$*
IMAGES = $(CURDIR)/$(if $(filter $(MACHINE),$*),$(NATIVE_TREE),build/$*)
HELPER_OPTIONS = -DCMAKE_TOOLCHAIN_FILE=$(CURDIR)/native/arch/$*/small_toolchain.cmake -DREACHSCAN_IMAGES=$(IMAGES)
WHEEL_HELPER = $(SHIPPED)/$(MACHINE)/reachscan-helper
$(HELPERS:%=helper-%): helper-%: images-% $(ZIG)
wheel: helpers
else
HELPERS ?= $(OTHERS)
HELPER_TREE = build/$*
HELPER_OPTIONS = $(CROSS)
endif

helpers: $(HELPERS:%=helper-%)  ## build the helpers for other processors, with SMALL=1 as they are shipped

$(HELPERS:%=helper-%): helper-%: $(READY)
	@$(CMAKE_HELPER) -B $(HELPER_TREE) $(HELPER_OPTIONS) -DREACHSCAN_DEV_OUTPUT=$(SHIPPED)/$* $(QUIETLY)
	@cmake --build $(HELPER_TREE) --target reachscan-helper

images-$(MACHINE): $(READY)
	@$(NATIVE) $(QUIETLY)
	@cmake --build $(NATIVE_TREE) --target images

$(OTHERS:%=images-%): images-%: $(READY)
	@$(CMAKE_HELPER) -B build/$* $(CROSS) $(QUIETLY)
	@cmake --build build/$* --target images

demo: build  ## start a server that leaks, and scan it
	@CXX=$(CXX) sh fixtures/demo.sh

test: build  ## run all tests: hosted native ones under sanitizers, then Python
	@$(CMAKE) -B build/hosted -DCMAKE_BUILD_TYPE=Debug \
	  -DREACHSCAN_HOSTED_TESTS=ON -DREACHSCAN_SANITIZE=ON $(QUIETLY)
	@cmake --build build/hosted --target hosted_tests
	ctest --test-dir build/hosted --output-on-failure --parallel $(JOBS)
	python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGUMENTS)

wheel: $(READY)  ## build a wheel for any Linux on this processor into dist/, with all helpers that there are
	@rm -f $(DIST)/*.whl
	@CXX=$(CXX) pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --config-settings=build-dir=$(NATIVE_TREE) --config-settings=cmake.define.REACHSCAN_DEV_OUTPUT= \
	  --config-settings=cmake.define.REACHSCAN_HELPER=$(WHEEL_HELPER) -w $(DIST) .
	@wheel tags --remove --platform-tag=$(subst $() ,.,$(WHEEL_TAGS)) $(DIST)/*.whl

install: $(READY)  ## install libreachscan, its headers and the helper into PREFIX=/usr/local
	@$(NATIVE) -DREACHSCAN_DEV_OUTPUT= $(QUIETLY)
	@cmake --build $(NATIVE_TREE)
	@cmake --install $(NATIVE_TREE) --component library

fuzz: $(READY)  ## search for input that breaks a reader, FUZZ_SECONDS=300 each (needs Clang)
	@$(CMAKE) -B build/fuzz -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=$(CLANGXX) \
	  -DREACHSCAN_HOSTED_TESTS=ON -DREACHSCAN_SANITIZE=ON -DREACHSCAN_LIBFUZZER=ON $(QUIETLY)
	@cmake --build build/fuzz --target fuzzers
	@for target in $(FUZZ_TARGETS); do \
	  mkdir -p build/fuzz/corpus/$$target && \
	  build/fuzz/tests/$$target -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=2048 \
	    -max_len=256 -print_final_stats=1 -artifact_prefix=build/fuzz/ build/fuzz/corpus/$$target || exit 1; \
	done
	REACHSCAN_FUZZ_SECONDS=$(FUZZ_SECONDS) REACHSCAN_TEST_SECONDS=$$((2 * $(FUZZ_SECONDS) + 60)) \
	  python -m pytest tests/unit/recording/test_fuzzed_input.py

lint: $(READY) | clang-format  ## check style, types and formatting
	ruff check $(PYTHON_SOURCES)
	ruff format --check $(PYTHON_SOURCES)
	mypy $(PYTHON_SOURCES)
	@vermin --quiet --no-tips --violations --target=3.9- --exclude typing.TypeAlias $(PYTHON_SOURCES)
	@clang-format --dry-run -Werror $(NATIVE_SOURCES)

format: $(READY) | clang-format  ## rewrite sources the way lint wants them
	ruff check --fix $(PYTHON_SOURCES)
	ruff format $(PYTHON_SOURCES)
	@clang-format -i $(NATIVE_SOURCES)

bench: build  ## the short form of each benchmark; docs/performance.md has the long one
	python benchmarks/pause.py --short
	python benchmarks/sweep.py --short
	python benchmarks/allocators.py --short
	python benchmarks/command.py --short
	python benchmarks/growth.py --short
	python benchmarks/recorder.py --short

clean:  ## remove everything that was built (fetched C libraries stay in .cache)
	rm -rf build dist $(VENV) reachscan/_native

# CMake builds the helper in place (above), so the editable install leaves it out. Debian 11's pip is too
# old to be told so.
$(READY): pyproject.toml | prerequisites
	@mkdir -p build
	$(PYTHON) -m venv $(VENV)
	pip install --quiet --disable-pip-version-check 'pip>=22.1'
	pip install --quiet --disable-pip-version-check --config-settings=wheel.cmake=false -e '.[dev]'
	@command -v cmake >/dev/null || pip install --quiet --disable-pip-version-check 'cmake>=3.22'
	@command -v ninja >/dev/null || pip install --quiet --disable-pip-version-check ninja
	@touch $@

$(ZIG): pyproject.toml $(READY)
	pip install --quiet --disable-pip-version-check --config-settings=wheel.cmake=false -e '.[helpers]'
	@touch $@

# All that is missing is named at once, and then the command that installs it on Debian.
prerequisites:
	@missing=; lacks() { echo "$$1"; missing="$$missing $$2"; }; \
	if ! command -v $(PYTHON) >/dev/null; then \
	  lacks "$(PYTHON) is missing" "python3 python3-venv"; \
	elif ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then \
	  lacks "$(PYTHON) is older than 3.9: make PYTHON=python3.x takes another one" python3; \
	elif ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  lacks "$(PYTHON) cannot make virtual environments" python3-venv; \
	fi; \
	if ! command -v $(CXX) >/dev/null; then \
	  lacks "$(CXX) is missing" "g++ libc6-dev linux-libc-dev"; \
	elif ! printf '#include <vector>\n#include <linux/futex.h>\nint main() {}\n' \
	    | $(CXX) -static -x c++ - -o /dev/null 2>/dev/null; then \
	  lacks "$(CXX) cannot link statically" "g++ libc6-dev linux-libc-dev"; \
	fi; \
	test -z "$$missing" || { echo "On Debian: apt install$$missing"; exit 1; }

clang-format:
	@command -v clang-format >/dev/null || { echo "clang-format is missing: apt install clang-format"; exit 1; }
