# `make demo` and `make test` do all the set-up they need: Python, make and a package registry are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-slow check format docs bench bench-model bench-training bench-decode bench-exports bench-encoding clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt hatch_build.py $(wildcard src/regard/kernels/csrc/*.?pp)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "regard needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)  ## translate both ways with the model in the package, and draw attention weights
	@$(BIN)/python examples/translate.py

check: $(READY)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: check  ## the checks and all the tests
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: $(READY)  ## the proofs that take minutes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2,onnx]'
	$(BIN)/pytest -m slow

format: $(READY)  ## put the format right
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY)  ## draw the pictures, write the configuration reference and build the site in docs/_build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/reference.py
	$(BIN)/sphinx-build -q -W --keep-going -c docs . docs/_build

bench: bench-model bench-training bench-decode bench-exports bench-encoding  ## all benchmarks, results into benchmarks/results

bench-model: $(READY)  ## a training step and attention, beside torch's and Hugging Face's
	$(BIN)/python -m benchmarks.model

bench-training: $(READY)  ## target tokens a second, beside torch, Hugging Face, Joey NMT and eole
	$(BIN)/python -m benchmarks.training

bench-decode: $(READY)  ## translating, beside CTranslate2, Hugging Face and Joey NMT; DATA=test.tsv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2]'
	$(BIN)/python -m benchmarks.decoding $(or $(DATA),$(error give DATA=test.tsv, English and German with a tab between)) $(MODELS)

bench-exports: $(READY)  ## the model of the package in other runtimes; DATA=test.tsv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ctranslate2,onnx]'
	$(BIN)/python -m benchmarks.exports $(or $(DATA),$(error give DATA=test.tsv, English and German with a tab between))

bench-encoding: $(READY)  ## corpora into token shards, beside the tokenizers library; DATA=FILE.tsv
	$(BIN)/python -m benchmarks.encoding $(DATA)

clean:  ## remove the virtual environment, the caches and the site
	rm -rf docs/_build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
