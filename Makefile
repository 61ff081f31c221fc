# Every target sets up what it needs: a virtual environment in .venv, the package, the jars.
# Needs Python >= 3.10, Java 17, Maven.
PYTHON ?= python3
SCALE ?= 1
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup demo jupyter test test-unit lint format docs notebooks bench log-store clean

help:
	@echo "make setup   .venv with lakelock, its development tools and the jars; afterwards .venv/bin/lakelock works"
	@echo "make demo    real flights through a real broker into ./lake, killed in mid-epoch, and counted"
	@echo "make jupyter the notebooks, to run and change them in a browser"
	@echo "make test    all tests;  make test-unit: those that need no JVM"
	@echo "make lint    ruff and mypy;  make format"
	@echo "make bench   against Structured Streaming and bare Spark, as a table, JSON and a picture; SCALE=0.05 to try it"

setup: $(READY)

$(READY): pyproject.toml connector/jars/spark.xml connector/jars/s3.xml connector/jars/kafka.xml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --editable ".[dev]"
	$(BIN)/lakelock jars
	@touch $@

demo: $(READY)
	$(BIN)/lakelock demo

jupyter: $(READY)
	$(BIN)/pip install --quiet --editable ".[notebooks]"
	$(BIN)/jupyter-lab notebooks

# Two at a time, each with a broker and a Spark of its own: mostly they wait.
test: $(READY)
	$(BIN)/pytest -n 2 --dist loadfile

test-unit: $(READY)
	$(BIN)/pytest tests/unit

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# After a change of an option: commit the page with it.
docs: $(READY)
	$(BIN)/python -m connector.config.reference > docs/options.md

# After a change of a notebook: runs all of them, and keeps what they print.
notebooks: $(READY)
	$(BIN)/jupyter-nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False \
		--ExecutePreprocessor.coalesce_streams=True notebooks/*.ipynb

# SCALE=0.05 to try it; ONLY="append upsert" for some of it.
bench: $(READY)
	$(BIN)/python tests/benchmarks --scale $(SCALE) $(if $(ONLY),--only $(ONLY))

# After a change of connector/jars/java: commit the jar with it.
log-store: $(READY)
	$(BIN)/python connector/jars/java/build.py

clean:
	rm -rf .venv lake .pytest_cache .mypy_cache .ruff_cache .hypothesis
