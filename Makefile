.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Commands in tests import the package hundreds of times, and compile it each time if modules are not cached.
unexport PYTHONDONTWRITEBYTECODE

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "graphpass needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(VENV)/ready ## convert a fixture, look at it, verify it, generate with it
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh fixtures/demo.sh

example: $(VENV)/ready ## convert a model for five runtimes with reports, twice: the second run finds it up to date
	$(BIN)/python fixtures/archive.py unpack
	$(BIN)/graphpass ci docs/example
	$(BIN)/graphpass ci docs/example

test: $(VENV)/ready ## run the test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m 'not slow'

# Without npm, or without its registry, tests of transformers.js are skipped.
build/javascript/ready: tests/javascript/package.json
	mkdir -p build/javascript && cp $< build/javascript
	-npm install --prefix build/javascript --ignore-scripts --no-audit --no-fund && touch $@

# Runtimes of devices, without which their tests are skipped: they are for few platforms.
$(VENV)/devices: $(VENV)/ready
	-$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[qnn,webgpu]' && touch $@

test-slow: $(VENV)/ready $(VENV)/devices build/javascript/ready ## run the tests that take long
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m slow

# The package as it installs, for programs that cannot follow package-dir.
define house
	rm -rf build/house && mkdir -p build/house/graphpass
	ln -s $(CURDIR)/graphpass/* $(CURDIR)/passes $(CURDIR)/cli build/house/graphpass
endef

lint: $(VENV)/ready ## run ruff, and import-linter on the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(house)
	cd build/house && $(CURDIR)/$(BIN)/lint-imports --config ../../pyproject.toml --no-cache

# The type checker cannot follow package-dir, so it looks at the package as it installs.
types: $(VENV)/ready ## run mypy on the installed form of the package
	rm -rf build/lib build/types && mkdir -p build/types
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target build/types .
	cd build/types && ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml --cache-dir ../mypy -p graphpass
	cd build/types && ../../$(BIN)/python -m mypy --config-file ../../pyproject.toml --cache-dir ../mypy ../../tests/api/typed_use.py

wheel: $(VENV)/ready ## build wheel and sdist, and run what the pages show in a new environment
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist .
	$(PYTHON) tests/installed.py build/dist/*.tar.gz

docs: $(VENV)/ready ## write the pages of docs/ that follow from the code
	$(BIN)/python docs/generate.py

site: $(VENV)/ready ## build the documentation as a site in build/site
	$(house)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pictures: $(VENV)/ready ## draw the pictures of docs/images with Chromium
	$(BIN)/python fixtures/archive.py unpack
	$(BIN)/python docs/pictures.py

notebooks: $(VENV)/ready ## run the notebooks of docs/notebooks and store what they print
	$(BIN)/python fixtures/archive.py unpack
	$(BIN)/python docs/notebooks.py

golden: $(VENV)/ready ## compare the results of all fixtures, targets and passes with the recorded ones
	$(BIN)/python tests/golden/record.py check --jobs 2

mutants: $(VENV)/ready ## put faults into the results of all targets and print the share that verification finds
	$(BIN)/python tests/mutants/score.py

clean: ## remove what was built
	rm -rf $(VENV) build demo-output *.egg-info

.PHONY: help demo example test test-slow lint types wheel docs site pictures notebooks golden mutants clean
