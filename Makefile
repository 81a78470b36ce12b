# make demo   compile ResNet-50, check it against ONNX Runtime, compare it with stock IREE
# make test   the test suite
# make check  lint, types and tests, as CI runs them
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PACKAGES := codegen dialect_passes runtime tuning

.PHONY: demo test lint types check
.DELETE_ON_ERROR:

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/python -m benchmarks.demo

# By files, for what the tests of one share is made once.
test: $(VENV)/.installed
	.ci/vulkan
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# A type checker cannot follow the package-dir mapping of an editable install, so it reads a tree of links.
types: $(VENV)/.installed
	rm -rf build/types && mkdir -p build/types/sartor
	ln -s $(CURDIR)/plugin/* $(addprefix $(CURDIR)/,$(PACKAGES)) build/types/sartor/
	MYPYPATH=build/types:. $(BIN)/mypy -p sartor -p benchmarks
	MYPYPATH=build/types:. $(BIN)/mypy tests

check: lint types test
