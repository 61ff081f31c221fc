# Every target sets up what it needs: a virtual environment in .venv, the package, the jars.
# Needs Python >= 3.10, Java 17, Maven.
PYTHON ?= python3
SCALE ?= 1
BIN := .venv/bin
READY := .venv/.ready
# As pip does with a package that isn't editable. Else each start takes up to a second more where PYTHONDONTWRITEBYTECODE is set.
COMPILED := $(BIN)/python -m compileall -q connector sinks
# The older pairs of Spark and Delta Lake, each in an environment of its own.
PAIR41 := pyspark==4.1.1 delta-spark==4.4.0
PAIR35 := pyspark==3.5.7 delta-spark==3.3.2
TESTS_OLD := tests/unit tests/integration tests/crash/test_kill.py
QUICK_OLD := $(addprefix tests/integration/test_,spark35.py ansi.py pipeline.py delta_conformance.py) tests/unit/connector

.PHONY: help setup wheel demo jupyter test test-unit campaigns test-ui test-connect test-spark41 test-spark41-quick test-spark35 test-spark35-quick lint format docs notebooks bench jars locks clean

help:
	@echo "make setup          creates .venv with lakelock, its development tools and the jars; then .venv/bin/lakelock works"
	@echo "make wheel          builds dist/*.whl and the source archive; install it elsewhere: pip install dist/*.whl"
	@echo "make demo           moves real flights through a real broker into ./lake, kills each pipeline in mid-epoch, and counts"
	@echo "make jupyter        opens the notebooks in a browser, to run and change them"
	@echo "make test           runs the tests that show every promise once, in 30 minutes"
	@echo "make test-unit      runs those of them that need no JVM, in 1 minute"
	@echo "make campaigns      runs what needs an hour: random kills, chaos, notebooks ...; ONLY=\"kills chaos\" runs two of them"
	@echo "make test-ui        tests the web page in a real Chromium; chromium and chromedriver have to be on the PATH"
	@echo "make test-connect   runs the integration tests through Spark Connect"
	@echo "make test-spark41   runs the tests with Spark 4.1 (-quick: some of them); ONLY=\"tests/unit ...\" runs these"
	@echo "make test-spark35   the same with Spark 3.5 and Delta 3.3"
	@echo "make lint           runs ruff and mypy"
	@echo "make format         formats the code, and fixes what ruff can fix"
	@echo "make docs           writes docs/options.md from the code, and docs/conformance.md from the tests"
	@echo "make notebooks      runs all notebooks, and keeps their outputs"
	@echo "make bench          measures Lakelock against Structured Streaming, bare Spark and delta-rs; SCALE=0.05 tries it"
	@echo "make jars           builds the jars of the S3 log store, the columnar reader and Protobuf from their Java sources"
	@echo "make locks          pins what the images hold, after a change of pyproject.toml or of the jars: docker/locks, *.sha256"
	@echo "make clean          removes the environments, ./lake, dist and caches"

setup: $(READY)

$(READY): pyproject.toml $(wildcard connector/spark/jars/*.xml)
	$(PYTHON) -m venv .venv
	@echo "Python packages, jars, and a rehearsal of Spark that makes every start faster: about five minutes in all"
	$(BIN)/pip install --quiet --editable ".[dev]"
	$(COMPILED)
	$(BIN)/lakelock jars
	@touch $@
	@echo "Done. Next: . .venv/bin/activate, which puts lakelock on the PATH"

# Needs no network: .venv has what the build needs.
wheel: $(READY)
	$(BIN)/python -m build --no-isolation

demo: $(READY)
	$(BIN)/lakelock demo

jupyter: $(READY)
	$(BIN)/pip install --quiet --editable ".[notebooks]"
	$(BIN)/jupyter-lab notebooks

# Two at a time, each with a broker and a Spark of its own: mostly they wait. The campaigns wait even more.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
WORKERS := 2
campaigns: WORKERS := 3

test: $(READY)
	$(BIN)/pytest $(PARALLEL) --durations 30

test-unit: $(READY)
	$(BIN)/pytest $(PARALLEL) tests/unit

# What each shows is in tests/suites.py, and in the table at the end. With `=`, as the folder notebooks is no argument.
campaigns: $(READY)
	$(BIN)/pytest $(PARALLEL) --campaigns="$(or $(ONLY),all)"

# Needs chromium and chromedriver on the PATH.
test-ui: $(READY)
	$(BIN)/pytest -m browser tests/integration/test_ui_browser.py

# Each of the two with a server of its own.
test-connect: $(READY)
	$(BIN)/pytest --connect $(PARALLEL) tests/integration

# What needs Spark 4 is left out of 3.5, with the reason: see the marker spark4.
test-spark41 test-spark35: test-spark%: .venv-spark%/.ready
	.venv-spark$*/bin/pytest $(PARALLEL) $(or $(ONLY),$(TESTS_OLD))

# Before a change lands.
test-spark41-quick test-spark35-quick: test-spark%-quick: .venv-spark%/.ready
	.venv-spark$*/bin/pytest $(PARALLEL) $(QUICK_OLD)

.venv-spark%/.ready: pyproject.toml $(wildcard connector/spark/jars/*.xml)
	$(PYTHON) -m venv .venv-spark$*
	.venv-spark$*/bin/pip install --quiet --editable ".[test,spark$*]" $(PAIR$*)
	.venv-spark$*/bin/lakelock jars
	@touch $@

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# After a change of an option, or of a case of another suite: commit the page with it.
docs: $(READY)
	$(BIN)/python -m connector.config.reference > docs/options.md
	$(BIN)/python tests/conformance_page.py > docs/conformance.md

# After a change of a notebook: runs all of them, and keeps what they print.
notebooks: $(READY)
	$(BIN)/jupyter-nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False \
		--ExecutePreprocessor.coalesce_streams=True notebooks/*.ipynb

# SCALE=0.05 to try it; ONLY="append upsert" for some of it.
bench: $(READY)
	$(BIN)/pip install --quiet --editable ".[bench]"
	$(COMPILED)
	$(BIN)/python tests/benchmarks --scale $(SCALE) $(if $(ONLY),--only $(ONLY))

# After a change of connector/spark/jars/java: commit the jar with it.
jars: $(READY)
	$(BIN)/python connector/spark/jars/java/build.py

# Keeps the versions that fit; after rm docker/locks/*.txt it takes the newest ones. Commit the files.
locks: $(READY) .venv-spark41/.ready .venv-spark35/.ready
	$(BIN)/pip install --quiet "uv>=0.9"
	$(BIN)/python docker/lock.py
	.venv-spark41/bin/python docker/lock.py jars
	.venv-spark35/bin/python docker/lock.py jars

clean:
	rm -rf .venv .venv-spark* lake dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
