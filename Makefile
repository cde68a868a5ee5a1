# `make demo` and `make test` are each enough on a fresh machine with Python 3.11+ and make: they build .venv themselves,
# again only when pyproject.toml or constraints.txt changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# files in the order of tests/conftest.py, the long ones first; not those with many tests first
TWO := -n 2 --dist loadfile --no-loadscope-reorder
export GLOO_SOCKET_IFNAME ?= lo
# two processes of tests on two cores: nobody spins for the other's
test slow faults portable oldest newest: export OMP_WAIT_POLICY ?= passive
# what is compiled is kept, whatever the environment says: it is a third of collecting the tests, and of each start
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-edit demo-keep demo-photos test portable oldest newest slow timing faults check lock docs survey bench-check benchmarks format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## teach the model that ships a new word; about three minutes on two cores
	$(BIN)/python tools/demo.py

demo-edit: $(STAMP)  ## teach the model that ships three edits of images; a few minutes on two cores
	$(BIN)/python tools/demo_edit.py

demo-keep: $(STAMP)  ## teach the model that ships one particular triangle, and keep the others; a few minutes on two cores
	$(BIN)/python tools/demo_keep.py

demo-photos: $(STAMP)  ## train a small model from nothing on real photographs; a few minutes on two cores
	$(BIN)/python tools/demo_photos.py

test: $(STAMP)  ## the tests that CI runs: static checks, then pytest
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	$(BIN)/python -m pytest $(TWO)

slow: $(STAMP)  ## tests that take longer, or repeat what others show, but the exhaustive ones
	$(BIN)/python -m pytest $(TWO) -m "slow and not exhaustive"

timing: $(STAMP)  ## tests that judge seconds; on a quiet machine
	$(BIN)/python -m pytest -m timing

faults: $(STAMP)  ## the whole fault suite (kills, failing disks, hostile files) and every exhaustive test; writes tests/faults/results.md
	$(BIN)/python tools/faults.py

portable: $(STAMP)  ## the tests that compare numbers, as other processors would work them out
	$(BIN)/python tools/portable.py

oldest: $(STAMP)  ## the tests with the floors of pyproject.toml, in .venv-oldest (torch may bring 5 GB)
	$(BIN)/python tools/versions.py oldest

newest: $(STAMP)  ## the tests with the newest release of every dependency, in .venv-newest (likewise)
	$(BIN)/python tools/versions.py newest

lock: $(STAMP)  ## write requirements.lock and the bill of materials anew, as pip resolves the pins
	$(BIN)/python tools/supply.py

docs: $(STAMP)  ## write the generated pages of docs/ anew
	$(BIN)/python tools/write_docs.py

survey: $(STAMP)  ## the house in figures; AGAINST=COMMIT shows before and after
	$(BIN)/python tools/survey.py $(if $(AGAINST),--against $(AGAINST))

bench-check: $(STAMP)  ## what memory, saves, a start and the data path cost, beside their goals; ONLY=NAME for some of it
	$(BIN)/python tools/bench_check.py $(if $(ONLY),--only $(ONLY))

benchmarks: $(STAMP)  ## measure this machine for benchmarks/, and write its table; on a quiet machine
	$(BIN)/python tools/bench_results.py

format: $(STAMP)
	$(BIN)/ruff format src tests tools
	$(BIN)/ruff check --fix src tests tools

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest demo runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
