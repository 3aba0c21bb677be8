# The commands of daily work. .ci/run uses the same commands. `make` without a target lists them.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first Python that is new enough.
FIND_PYTHON := for p in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done

# The theme prints a long notice about its successor otherwise.
BUILD_SITE := NO_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict -f .ci/site/mkdocs.yml

.PHONY: help bench docker worlds sabotage reproduce-cepsim reproduce-cepsim-on-spark reproduce-planning reproduce-state reproduce-patterns reproduce-demo reproduce-esm setup java broker connector mirror frameworks mosquitto nats rsyslog browser prometheus wan demo test fuzz faults docs package check lock clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):[^#]*## /\1	/'

setup: $(STAMP) ## create .venv and install into it; does nothing if that is done

$(STAMP): pyproject.toml constraints.txt
	@python=$$($(FIND_PYTHON)); test -n "$$python" || { echo "Spillway needs Python 3.11 or later with its venv \
	module: install it (Debian/Ubuntu: apt-get install python3 python3-venv), or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }; \
	test -x $(BIN)/python || "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip
	$(BIN)/python -m pip install --quiet -c constraints.txt --build-constraint constraints.txt --group dev --group docs -e '.[all]'
	@touch $(STAMP)

java: ## check for a Java that Spark can use, or install it
	@.ci/java

broker: ## download the Kafka broker for the tests
	@.ci/broker

connector: ## download Spark's Kafka connector for the bench
	@.ci/broker bench/suite/pom.xml build/spark-kafka

mirror: ## download Kafka's MirrorMaker for the bench
	@.ci/broker bench/suite/mirror/pom.xml build/mirror

frameworks: setup ## install the peers of the bench that cannot be installed beside Spillway
	@cmp -s bench/suite/reading/frameworks/requirements.txt build/frameworks/requirements.txt || { \
	$(BIN)/python -m venv --clear build/frameworks && build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check \
	-r bench/suite/reading/frameworks/requirements.txt && cp bench/suite/reading/frameworks/requirements.txt build/frameworks; }

nats: ## check for the NATS server of the bench, or install it
	@.ci/installed nats-server nats-server

rsyslog: ## check for the rsyslog of the bench, or install it
	@.ci/installed rsyslogd rsyslog rsyslog-relp

mosquitto: ## check for the MQTT broker of the tests, or install it
	@.ci/installed 'mosquitto mosquitto_sub mosquitto_pub' mosquitto mosquitto-clients

browser: ## check for the browser of the tests, or install it
	@.ci/browser

prometheus: ## check for the Prometheus of the tests, or unpack it
	@.ci/prometheus

wan: ## check that the tests can set up a WAN
	@.ci/wan

# With KAFKA=1 the demo has a broker of its own, which ends with it.
DEMO := $(if $(KAFKA),$(BIN)/python -m tests.connectors.around build/demo-broker $(BIN)/spillway demo --kafka BROKER --connector build/spark-kafka/jars,$(BIN)/spillway demo)

demo: setup java $(if $(KAFKA),broker connector) $(if $(WAN),wan) ## run the e-mail benchmark; MAIL=inbox.mbox.gz replays real mail, QUICK=1 is short, COLD=1 starts Spark on each VM, RUNS=5 repeats it, POLICY=lookahead has another policy, WAN=70ms,50mbit emulates a WAN, KAFKA=1 plays from Kafka to Kafka
	$(DEMO) $(if $(MAIL),--mail "$(MAIL)") $(if $(WAN),--wan "$(WAN)") $(if $(QUICK),--quick) $(if $(COLD),--cold) $(if $(RUNS),--runs $(RUNS)) $(if $(POLICY),--policy $(POLICY))

test: export OMP_NUM_THREADS := 1
# In most tests Spark runs only for seconds. Without the JVM's second compiler the tests take a third less CPU (decision 0092). Then the JVM keeps
# only 48 MB of compiled code, too little for a session of many queries: it throws code away and compiles it again. On two busy cores, G1's threads cost more than they save.
test: export SPARK_SUBMIT_OPTS := -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC
test: setup java broker connector mirror frameworks mosquitto nats rsyslog browser prometheus wan ## run all tests, in JOBS processes (2)
	@$(BIN)/python -m compileall -q engines gateway infra policies tests  # once, and not in each process that the tests start
	$(BIN)/spillway prepare
	$(BIN)/python -m pytest -n $(or $(JOBS),2) --dist loadgroup --no-loadscope-reorder --durations=25 -rs --no-fold-skipped

fuzz: setup ## fuzz the link with FRAMES frames (10,000,000), SEED 1
	$(BIN)/python tests/faults/fuzz.py $(or $(FRAMES),10000000) $(or $(SEED),1)

worlds: setup ## simulate COUNT worlds (1,000), from SEED 1 on
	$(BIN)/python tests/worlds/worlds.py $(or $(COUNT),1000) $(or $(SEED),1)
	$(BIN)/python tests/worlds/selection_worlds.py $(or $(COUNT),1000) $(or $(SEED),1)

sabotage: setup ## put each known mistake into the core, one at a time; write which check finds it to docs/results/sabotage.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/worlds/sabotage.py --table

reproduce-cepsim: setup ## simulate CEPSim's use case for the table of docs/results/cepsim.md
	$(BIN)/python bench/reproduce_cepsim.py

reproduce-cepsim-on-spark: setup java ## run CEPSim's use case on real Spark at six loads and compare with the simulator; 20 minutes, run nothing else
	OMP_NUM_THREADS=1 $(BIN)/python bench/cepsim_on_spark.py

reproduce-planning: setup ## measure forecasts and planning, write the tables of docs/results/planning.md; DATA=FOLDER has real traces
	OMP_NUM_THREADS=1 $(BIN)/python bench/reproduce_planning.py $(if $(DATA),--data "$(DATA)")

reproduce-patterns: setup java ## measure selections and patterns, write the tables of docs/results/patterns.md; DATA=FOLDER has real data
	OMP_NUM_THREADS=1 $(BIN)/python bench/reproduce_patterns.py $(if $(DATA),--data "$(DATA)")

reproduce-state: setup java ## divide keys among lanes, run real queries with state against oracles, write the tables of docs/results/state.md; DATA=FOLDER has real data
	OMP_NUM_THREADS=1 $(BIN)/python bench/reproduce_state.py $(if $(DATA),--data "$(DATA)")

docker: ## build the container image, with Docker or Podman
	@docker/build

bench: setup java broker connector mirror frameworks mosquitto nats rsyslog wan ## measure peers and limits side by side (as root, for the WAN); ONLY="decode keys" chooses rows, COMPARE=old.json shows what changed, DATA=FOLDER has real mails, tweets and ticks
	$(BIN)/spillway prepare
	$(if $(DATA),SPILLWAY_BENCH_DATA="$(DATA)") PYTHONPATH=bench $(BIN)/python -m suite $(ONLY) $(if $(COMPARE),--compare "$(COMPARE)")

reproduce-demo: setup java ## play the demo five times with warm VMs and five times with cold ones, for the table of README.md
	$(BIN)/python bench/readme_demo.py

reproduce-esm: setup java wan ## repeat ESM's experiments over a WAN of 70 ms (as root) for the tables of docs/results/esm.md
	rm -rf build/esm
	$(BIN)/python bench/reproduce_esm.py

faults: setup java broker mosquitto wan ## run every fault test in full; takes hours, fails when a goal is missed, writes docs/reliability.md
	@failed=0; SPILLWAY_FAULTS=full $(BIN)/python -m pytest -s tests/faults tests/wan || failed=$$?; \
	$(BIN)/python -m tests.faults.figures; exit $$failed

package: setup java ## build the wheel, install it into an empty environment, run it there, the quick demo too
	@.ci/package $(BIN)/python

docs: setup ## build the site of the documentation into build/site, and check its links
	$(BIN)/python -m gateway.config.reference.write docs/config.md
	$(BUILD_SITE)

check: setup ## lint, format, types, import contracts, links of the documentation
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BUILD_SITE)

lock: setup ## write the installed versions to constraints.txt
	$(BIN)/python -m pip install --quiet "hatchling>=1.27"
	$(BIN)/python .ci/lock

clean: ## remove build output; keep state/, out/ and .venv
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
