# The front door. `make help` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/bash

export TIDETAPE_PYTHON := $(CURDIR)/.venv/bin/python
export PYTHONPATH := $(CURDIR)/agent/python:$(CURDIR)
# Arguments for the program that a target runs, as in: make demo ARGS=--steps=20
ARGS ?=

.PHONY: help setup build demo test test-long bench-replay bench-rivals bench-training bench-fidelity bench-planner bench-collectives bench-server gpu-check lint wheel deb dashboards manifests

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install Debian and Python packages (root only where Debian packages are missing)
	@tools/setup.sh

build: setup ## Build the server, the tools and the agent into bazel-bin/
	@bazel build //...

demo: build ## Train a model under five memory limits with a planner beside it; writes demo-out/
	@$(TIDETAPE_PYTHON) -m tidetape.demo.cluster $(ARGS)

test: build ## Run all tests but the long ones; the last line sums up
	@$(TIDETAPE_PYTHON) tools/run_tests.py

test-long: build ## Run the tests that take minutes each
	@$(TIDETAPE_PYTHON) tools/run_tests.py --long

bench-replay: build ## Time replay against checkpointing and its rivals
	@$(TIDETAPE_PYTHON) -m tests.benchmarks.bench_replay $(ARGS)

bench-rivals: build ## Time Tidetape at the memory of each rival, and draw all points
	@$(TIDETAPE_PYTHON) -m tests.benchmarks.bench_rivals $(ARGS)

bench-training: build ## Train 500 steps with and without Tidetape and its rivals, and find the batches that fit
	@$(TIDETAPE_PYTHON) -m tests.benchmarks.bench_training $(ARGS)

bench-fidelity: build ## Compare predicted with measured peaks and replay times on six kinds of models
	@$(TIDETAPE_PYTHON) -m tests.benchmarks.bench_fidelity $(ARGS)

bench-planner: build ## Time the planner on tapes of many sizes
	@bazel-bin/planner/testing/bench_planner $(ARGS)

bench-collectives: build ## Time FSDP2 over stock and over Tidetape collectives (2 and 4 ranks)
	@$(TIDETAPE_PYTHON) -m tests.benchmarks.bench_collectives $(ARGS)

bench-server: build ## Time the server under many agent streams
	@bazel-bin/server/bench_server $(ARGS)

gpu-check: ## Build the GPU side without Bazel, run what this machine can, write build/gpu-check.json
	@$(if $(wildcard $(TIDETAPE_PYTHON)),$(TIDETAPE_PYTHON),python3) collectives/gpu_check/gpu_check.py $(ARGS)

lint: build ## Check formatting and common mistakes in C++, Python and protos
	@tools/lint.sh

wheel: build ## Make a pip-installable wheel of the agent in dist/
	@$(TIDETAPE_PYTHON) tools/build_wheel.py

deb: ## Make a Debian package of the server and tidetapectl in dist/
	@tools/build_deb.sh

dashboards: setup ## Write the Grafana dashboards' JSON anew from their source
	@$(TIDETAPE_PYTHON) -m deploy.grafana.build

manifests: setup ## Write the Kubernetes base anew from its Helm chart
	@$(TIDETAPE_PYTHON) -m deploy.kubernetes.render
