# make setup | demo | check | test | bench; PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo check test lint docs bench clean

$(BIN)/gpuprov: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

setup: $(BIN)/gpuprov

demo: setup            ## the main job, on a simulated host: check, plan, apply, verify
	$(BIN)/python -m gpuprov.simulate setup
	tests/demo.sh $(BIN)

lint: setup
	$(BIN)/ruff check gpuprov tests docs benchmarks
	$(BIN)/ruff format --check gpuprov tests docs benchmarks
	$(BIN)/mypy
	$(BIN)/yamllint --strict roles playbooks inventories
	$(BIN)/ansible-lint --offline -q roles playbooks

check: lint            ## everything fast: under 90 seconds
	$(BIN)/pytest -n 2

test: check            ## all tests: also the wheel, and real systemd hosts (root, podman)
	$(BIN)/python -m gpuprov.simulate setup
	$(BIN)/pytest -m 'install or e2e'

docs: setup
	$(BIN)/python docs/generate.py

bench: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf build dist
