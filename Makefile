# `make demo` and `make test` do all the set-up they need: Python, make and a package registry are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-sanitize test-slow check format docs bench bench-model bench-training bench-decode bench-exports bench-refactor bench-encoding bench-long bench-busy bench-plain bench-kernels clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/regard/kernels/csrc/*.?pp)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## translate, give an abstract a title, answer questions about a story, and draw attention
	@$(BIN)/python examples/demo.py

check: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: check  ## the checks and all the tests
	$(BIN)/pytest -n 2 -m "not slow"
	REGARD_KERNELS=off $(BIN)/pytest -n 2 -q tests/conformance

# libasan looks for __cxa_throw when it is loaded, and Python, a C program, has no libstdc++ by then: both are preloaded.
SANITIZED := build/sanitized/kernels.so
SANITIZE := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
$(SANITIZED): $(wildcard src/regard/kernels/csrc/*.?pp)
	mkdir -p $(@D)
	$(CXX) $(SANITIZE) -std=c++17 -shared -fPIC -ffp-contract=off -pthread -o $@ $(filter %.cpp,$^)

test-sanitize: $(READY) $(SANITIZED)  ## tests of the kernels, built with address and undefined-behavior sanitizers
	for level in '' avx2; do \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  REGARD_KERNELS=$$level REGARD_KERNEL_LIBRARY=$(abspath $(SANITIZED)) \
	  $(BIN)/pytest -q -p no:cacheprovider tests/unit/kernels tests/unit/acceleration || exit 1; \
	done

test-slow: $(READY)  ## the slow tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2,onnx]'
	$(BIN)/pytest -m slow

format: $(READY)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## draw the pictures, write the configuration reference and build the site in docs/_build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build -q -W --keep-going -c docs . docs/_build

# English and German with a tab between; DATA names another table.
TEST_SET := src/regard/models/de-en/test.tsv

bench: bench-model bench-training bench-decode bench-exports bench-encoding  ## the main benchmarks, results into benchmarks/results

bench-model: $(READY)  ## a training step and attention, beside torch's and Hugging Face's
	$(BIN)/python -m benchmarks.model

bench-training: $(READY)  ## target tokens a second, beside torch, Hugging Face, Joey NMT and eole
	$(BIN)/python -m benchmarks.training

bench-decode: $(READY)  ## translating, beside CTranslate2, Hugging Face and Joey NMT; DATA=FILE.tsv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2]'
	$(BIN)/python -m benchmarks.decoding $(or $(DATA),$(TEST_SET)) $(MODELS)

bench-exports: $(READY)  ## the model in the package in other runtimes; DATA=FILE.tsv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2,onnx]'
	$(BIN)/python -m benchmarks.exports $(or $(DATA),$(TEST_SET))

bench-refactor: $(READY)  ## the same workloads with another checkout of regard, in turn; OLD=CHECKOUT
	$(BIN)/python -m benchmarks.refactor $(or $(OLD),$(error give OLD=CHECKOUT, with its kernels built))

bench-encoding: $(READY)  ## corpora into token shards, beside the tokenizers library; DATA=FILE.tsv
	$(BIN)/python -m benchmarks.encoding $(DATA)

bench-long: $(READY)  ## attention over long sequences, every pattern and kind, beside exact attention and four packages
	$(BIN)/python -m benchmarks.long

bench-busy: $(READY)  ## training and one sentence, idle and beside a busy loop
	$(BIN)/python -m benchmarks.busy

bench-plain: $(READY)  ## training and decoding without kernels, beside torch's and Hugging Face's
	$(BIN)/python -m benchmarks.plain

bench-kernels: $(READY)  ## whole steps with all kernels, and with all but one
	$(BIN)/python -m benchmarks.kernels

clean:  ## remove the virtual environment, the caches and the site
	rm -rf build docs/_build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
