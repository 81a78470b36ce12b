# make demo   compile ResNet-50, check it against ONNX Runtime, compare it with stock IREE
# make test   the test suite
# make unit   the tests that neither compile nor start a process, in two minutes
# make thorough  the test suite with the tests for which CI has no time
# make check  lint, types, documentation and tests, as CI runs them
# make docs   the documentation as pages, in build/site
# make conformance  ONNX's backend tests, whose counts are written into the documentation
# make kernels  compile all variants of CUDA kernels for typical layers, and assemble them
# make rooms  draw the rooms of the package into docs/explanation/design.md
# make report-libraries  bundle the libraries that reports contain, which needs npm
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PACKAGES := codegen dialect_passes runtime tuning
# A compilation starts several processes, and the tests hundreds. Where the environment keeps Python from writing bytecode,
# each of them would compile the package's sources anew, which takes longer than all else that it does to start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test unit thorough conformance kernels docs lint types rooms report-libraries links check
.DELETE_ON_ERROR:

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks.demo

# Tests are distributed by file, so that fixtures that a file shares are made once, in the order of tests/conftest.py,
# which knows better than the number of a file's tests how long it takes. A process that a test ends is not replaced:
# pytest-xdist may wait for what it had left for ever.
TESTS = SARTOR_AARCH64_RUNTIME="$${SARTOR_AARCH64_RUNTIME:-$$(.ci/aarch64 $(BIN)/python)}" $(BIN)/python -m pytest --numprocesses 2 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
test: $(VENV)/.installed
	.ci/vulkan
	$(TESTS)

unit: $(VENV)/.installed
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --unit tests

# Tests that CI has no time for rely on what others of their files leave, so that all are run.
thorough: $(VENV)/.installed
	$(TESTS) -m "thorough or not thorough"

conformance: $(VENV)/.installed
	$(BIN)/python -m benchmarks.conformance

kernels: $(VENV)/.installed
	$(BIN)/python -m tools.cuda $(if $(ARCH),--arch $(ARCH))

# Neither a type checker nor a linter of imports can follow the package-dir mapping of an editable install, so they read
# a tree of links.
links:
	rm -rf build/types && mkdir -p build/types/sartor
	ln -s $(CURDIR)/plugin/* $(addprefix $(CURDIR)/,$(PACKAGES)) build/types/sartor/

$(VENV)/.documented: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

# The builder's own announcements are no warnings about the pages.
docs: $(VENV)/.documented links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lint: $(VENV)/.installed links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=build/types $(BIN)/lint-imports --no-cache
	PYTHONPATH=build/types $(BIN)/python -m tools.rooms --check
	$(BIN)/python -m tools.house
	$(BIN)/towncrier build --draft --version next > build/changes.md

types: $(VENV)/.installed links
	MYPYPATH=build/types:. $(BIN)/mypy -p sartor -p benchmarks -p tools
	MYPYPATH=build/types:. $(BIN)/mypy tests

rooms: $(VENV)/.installed links
	PYTHONPATH=build/types $(BIN)/python -m tools.rooms

report-libraries:
	tools/report_libraries/bundle.sh

check: lint types docs test
