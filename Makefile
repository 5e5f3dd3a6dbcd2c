# Python 3.11 or newer is the only prerequisite: everything else comes into .venv. On Windows see README.md.
PYTHON ?= python3
PORT ?= 8000
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
NOTEBOOKS := $(wildcard book/*.ipynb chapters/*.ipynb solutions/*.ipynb)
ROOT_MAY := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: help book zip test lab lock bench bench-gpu train notebooks lint clean

help: ## print this list
	@awk -F ': .*## ' '/^[a-z-]+: .*## / { printf "%-10s %s\n", $$1 ":", $$2 }' $(MAKEFILE_LIST)

book: $(INSTALLED) ## build the site and serve it at http://127.0.0.1:8000 (PORT=8001 for another port)
	@$(BIN)/python tools/serve.py --port $(PORT)

zip: $(INSTALLED) ## the built site as one file, to read without a network (ARGS=--lab with the lab)
	@$(BIN)/python tools/zip_site.py $(ARGS)

test: $(INSTALLED) ## run every test: library, notebooks, site in a browser (ARGS="-k paged" for some)
	@$(BIN)/python tools/browser.py || echo "The tests of the site will fail."
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --nbval --nbval-current-env tests book chapters solutions $(ARGS)

lab: $(INSTALLED) ## open JupyterLab on the notebooks
	@$(BIN)/python -m jupyterlab $(ROOT_MAY)

lock: ## renew requirements.txt from requirements.in
	@$(PYTHON) tools/lock.py

bench: $(INSTALLED) ## measure this machine, write bench/*.json
	@set -e; for script in $(filter-out tools/bench_gpu.py,$(wildcard tools/bench_*.py)); do $(BIN)/python $$script; done

train: $(INSTALLED) ## train the retrieval model again, three seeds, into _build/retrieval (about 25 minutes)
	@$(BIN)/python tools/train_retrieval.py

bench-gpu: $(INSTALLED) ## measure this machine's CUDA GPU, write bench/gpu.json
	@$(BIN)/python tools/bench_gpu.py

notebooks: $(INSTALLED) ## run pages and solutions again, put them in the committed form, make the exercises
	@$(BIN)/python tools/notebooks.py execute $(NOTEBOOKS)
	@$(BIN)/python tools/make_exercises.py

lint: $(INSTALLED) ## check style and the form of the notebooks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tools/notebooks.py normalise --check $(NOTEBOOKS) $(wildcard exercises/*.ipynb)

clean: ## remove what was built and the caches; .venv stays
	@rm -rf _build .pytest_cache .ruff_cache .hypothesis .jupyter_cache
	@find book chapters exercises solutions src tests tools -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON): install Python 3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
			"To name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment." \
			"On Debian and Ubuntu: sudo apt install python3-venv"; exit 1; }
	@echo "Installing everything into $(VENV). The first time takes some minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
