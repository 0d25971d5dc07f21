# `make demo` and `make test` do all set-up themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check bench versions gpu-check clean

DEMO := graphs/resnet50-tiny-bN.onnx

demo: $(READY)
	mkdir -p demo
	$(BIN)/checkmate solve $(DEMO) --dim N=128 --budget 70% -o demo/schedule.json --onnx demo/model.onnx
	$(BIN)/checkmate check $(DEMO) demo/schedule.json --run

test: $(READY)
	$(BIN)/python -m pytest -n 2

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

bench: $(READY)
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/files.py
	$(BIN)/python bench/profile.py
	$(BIN)/python bench/overhead.py

versions: $(READY)
	$(BIN)/python bench/versions.py --versions 1.19.2,1.20.1,1.22.1,1.24.4,1.31.1,newest

# The libraries of the CUDA provider, of gigabytes, only where there is a GPU.
gpu-check: $(READY)
	if $(BIN)/python bench/gpu_watch.py >&2; then \
	  $(BIN)/python -m pip install --quiet --editable '.[dev,cuda]'; \
	fi
	$(BIN)/python bench/gpu_check.py

clean:
	rm -rf $(VENV) dist build demo

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $(READY)

# The shipped schedules; `make test` compares them with what `solve` writes.
SCHEDULES := vgg16-full-b256:80% mobilenetv1-full-b512:60% resnet50-full-b128:60% \
             unet-full-b32:60% gpt2-full-b8:60%

.PHONY: schedules
schedules: $(READY)
	for item in $(SCHEDULES); do \
	  name=$${item%%:*}; \
	  $(BIN)/checkmate solve graphs/$$name.onnx --budget $${item##*:} --costs flops \
	    --optimize none --strategy greedy --fences run --no-arena -o schedules/$$name.json || exit 1; \
	done
