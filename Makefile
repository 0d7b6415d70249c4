# The front door. Everything is set up on the first call: see `make help`.
SHELL := bash
.DEFAULT_GOAL := help

# The CPython versions that csrc/cpython has a file for. 3.11 is the one that torch is used with.
CORE_VERSIONS := $(patsubst csrc/cpython/v3%.h,3.%,$(sort $(wildcard csrc/cpython/v3[0-9][0-9].h)))
OTHER_VERSIONS := $(filter-out 3.11,$(CORE_VERSIONS))
# Opens a loop over those that are installed here; it is loud about each one that is not.
for_found_versions := set -e; versions=$$(tools/found_versions.sh $(OTHER_VERSIONS)); for version in $$versions

PYTHON := .venv/bin/python
# More words for pytest, as in: make test PYTEST="-k generators -x"
PYTEST ?=
# The rooms for clang-tidy, as in: make lint ROOMS="py cpython". Without: those that changed.
ROOMS ?=

.PHONY: help demo demo-loop test bench lint format clean distclean build build-torch build-core build-asan
.PHONY: fuzz test-breaks build-mutants test-mutants test-asan test-cpython test-cpython-ci
.PHONY: test-opinfo test-inductor test-million test-install picture wheel

help: ## What there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

## Set-up: stamps, so that nothing is installed twice.
.venv/.has-%: requirements/%.txt requirements/constraints.txt
	@tools/setup.sh 3.11 $*
	@touch $@

.venv-%/.has-test: requirements/test.txt requirements/constraints.txt
	@tools/setup.sh $* test
	@touch $@

build: build-torch build-core ## Build everything (build/torch, build/core-3.11, ...)

build-torch: .venv/.has-build
	@tools/build.sh torch

build-core: .venv/.has-build
	@tools/build.sh core 3.11
	@$(for_found_versions); do \
	  make -s --no-print-directory .venv-$$version/.has-test; tools/build.sh core $$version; done

build-asan: .venv/.has-build
	@tools/build.sh asan

demo: build-torch .venv/.has-test ## Compile a small Llama with Inductor: graph, guards, results, costs beside TorchDynamo's
	@$(PYTHON) demo/llama.py

demo-loop: build-core ## Run a real program under the eval loop and say what it did
	@$(PYTHON) demo/run.py

test: build .venv/.has-test ## Build, then the C++ unit tests and pytest, for every CPython found
	@core=; $(for_found_versions); do core="$$core --core $$version .venv-$$version/bin/python"; done; \
	$(PYTHON) tools/run_tests.py $$core -- $(PYTEST)

test-opinfo: build-torch .venv/.has-test ## Fakes against eager over torch's whole operator database (a minute)
	@$(PYTHON) tests/opinfo/run.py

test-inductor: build-torch .venv/.has-test ## Every recorded module through Inductor, for inference and training (10 minutes)
	@ALTERNATOR_LONG_TESTS=1 $(PYTHON) -m pytest -q tests/graph/test_recorded_inductor.py $(PYTEST)

test-install: build-torch .venv/.has-test ## The wheel in a fresh environment that has torch: it runs the quick start (builds everything)
	@ALTERNATOR_LONG_TESTS=1 $(PYTHON) -m pytest -q tests/test_package.py $(PYTEST)

test-million: build-torch .venv/.has-test ## A million operators on fakes, a million recorded calls: nothing stays behind
	@ALTERNATOR_LONG_TESTS=1 $(PYTHON) -m pytest -q tests/fake/test_fake_lifetime.py tests/graph/test_recording.py -k behind $(PYTEST)

test-asan: build-asan .venv/.has-test ## The C++ unit tests and the interpreter tests under ASan and UBSan
	@tools/asan.sh $(PYTHON) -m pytest -q tests/test_cpp.py tests/interpreter $(PYTEST)

test-cpython: build-core ## CPython's own tests under the loop (long)
	@$(PYTHON) tests/cpython/run_suite.py --all
	@$(for_found_versions); do .venv-$$version/bin/python tests/cpython/run_suite.py --all; done

test-cpython-ci: build-core ## A representative part of them (5 minutes)
	@$(PYTHON) tests/cpython/run_suite.py --ci
	@$(for_found_versions); do .venv-$$version/bin/python tests/cpython/run_suite.py --ci; done

build-mutants: .venv/.has-build
	@tools/build.sh mutants

MUTANTS ?=
test-mutants: build-mutants .venv/.has-test ## Without any one guard, write-back, rebuild or lift row, a test must fail
	@$(PYTHON) tests/helpers/mutants.py --core build/mutants --jobs 2 $(MUTANTS)

# More words, as in: make test-breaks BREAKS="--every 1 2 3 --only generators"
BREAKS ?=
test-breaks: build-torch .venv/.has-test ## The traced programs with a break forced at every n-th instruction (long)
	@$(PYTHON) tests/helpers/forced.py $(BREAKS)

# More words for the fuzzer, as in: make fuzz FUZZ="--seed 5000 --programs 20000"
FUZZ ?= --seed 1 --seconds 60
fuzz: build-torch .venv/.has-test ## Random programs, compiled against eager; 60 seconds of them
	@$(PYTHON) -m tests.fuzz --jobs 2 $(FUZZ)

bench: build ## Benchmarks: every file in benchmarks/, as ratios within one process
	@set -e; for file in $(sort $(wildcard benchmarks/*.py)); do echo "== $$file"; $(PYTHON) $$file; done

picture: ## Draw docs/images/*.svg from the text beside them
	@$(or $(wildcard $(PYTHON)),python3) tools/picture.py

lint: .venv/.has-build .venv/.has-lint ## clang-format, clang-tidy on changed files, ruff, mypy --strict
	@tools/build.sh --configure torch
	@tools/build.sh --configure core 3.11
	@$(PYTHON) tools/lint.py $(if $(ROOMS),--rooms $(ROOMS))

format: .venv/.has-lint ## Rewrite the sources as clang-format and ruff want them
	@$(PYTHON) tools/lint.py --fix

wheel: .venv/.has-build ## A wheel of the package into dist/, for the torch in .venv (compiles everything)
	@PATH="$$PWD/.venv/bin:$$PATH" $(PYTHON) -m pip wheel -q --no-build-isolation --no-deps -w dist .

clean: ## Remove what was built
	rm -rf build dist alternator/*.so

distclean: clean ## Also remove the virtual environments
	rm -rf .venv .venv-3.*
