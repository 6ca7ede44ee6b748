# Every target does its own set-up: see scripts/setup.sh. All checks are tests; this file only starts them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

export CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
export PATH := $(PATH):$(HOME)/.cargo/bin
RELEASE := $(CARGO_TARGET_DIR)/release
DEBUG := $(CARGO_TARGET_DIR)/debug
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# Where the static bailey-jail and bailey-guest are built.
STATIC_DIR = $(CARGO_TARGET_DIR)/static/$(HOST)/static
# bailey is built with the hashes of the two, and starts no others.
HASHES = BAILEY_JAIL_SHA256=$$(sha256sum < $(STATIC_DIR)/bailey-jail | cut -c-64) \
         BAILEY_GUEST_SHA256=$$(sha256sum < $(STATIC_DIR)/bailey-guest | cut -c-64)
# Programs that need root are built as you and started by sudo.
SUDO := $(shell test "$$(id -u)" = 0 || echo sudo --preserve-env)
RUNNER = env $(if $(SUDO),CARGO_TARGET_$(shell echo $(HOST) | tr a-z- A-Z_)_RUNNER="$(SUDO)")

# Beside what building takes, as command:package.
demo: NEEDS = python3:python3
test: NEEDS = python3:python3 node:nodejs busybox:busybox-static ip:iproute2 ps:procps bwrap:bubblewrap qemu-system-x86_64:qemu-system-x86 \
    keytool:default-jre-headless mkfs.ext4:e2fsprogs runsc:runsc fzf:fzf rg:ripgrep musl-gcc:musl-tools
soak: NEEDS = python3:python3 node:nodejs busybox:busybox-static ip:iproute2 ps:procps bwrap:bubblewrap
bench: NEEDS = bwrap:bubblewrap
fuzz: NEEDS = g++:g++

.PHONY: help build static crash-points demo test soak fuzz lint fmt serve bench setup

help: ## Show this
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

build: setup static ## Build target/release/bailey, with bailey-jail and bailey-guest beside it
	@env $(HASHES) cargo build --release --locked -p bailey
	install -m 0755 $(STATIC_DIR)/bailey-jail $(STATIC_DIR)/bailey-guest $(RELEASE)/

static: setup
	@RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile static --locked --target $(HOST) \
	    --target-dir $(CARGO_TARGET_DIR)/static -p bailey-jail -p bailey-guest

# bailey and bailey-jail with the steps at which tests kill, laid out in crash-points/ beside the product's own. Cargo puts
# either into the same places: there the product's own come last. PROFILE is nothing, or --release.
crash-points: setup
	@points=bailey-crash/crash-points built=$(if $(PROFILE),$(RELEASE),$(DEBUG))
	static() { RUSTFLAGS="-C target-feature=+crt-static" cargo build --profile static --locked --target $(HOST) \
	    --target-dir $(CARGO_TARGET_DIR)/static "$$@"; }
	static -p bailey-guest
	static -p bailey-jail --features $$points
	env $(HASHES) cargo build $(PROFILE) --locked -p bailey --features $$points
	install -m 0755 -D -t $$built/crash-points $$built/bailey $(STATIC_DIR)/bailey-jail $(STATIC_DIR)/bailey-guest
	rm $$built/bailey
	static -p bailey-jail -p bailey-guest

demo: build ## Play the story: one run over one tenant's files, and the empty room
	@cargo build --release --locked -p bailey --example demo
	$(SUDO) $(RELEASE)/examples/demo $(RELEASE)/bailey

test: setup lint crash-points static ## Lint, and run every test
	@trap 'test -z "$(SUDO)" || $(SUDO) chown -R "$$(id -u):$$(id -g)" "$(CARGO_TARGET_DIR)"' EXIT
	env $(HASHES) cargo build --locked -p bailey
	install -m 0755 $(STATIC_DIR)/bailey-jail $(STATIC_DIR)/bailey-guest $(DEBUG)/
	$(SUDO) $(DEBUG)/bailey template prepare --wall microvm
	$(RUNNER) cargo test --workspace --exclude bailey --locked --no-fail-fast
	# Cargo has put its own builds of these two there; the end-to-end tests are about the static ones.
	install -m 0755 $(STATIC_DIR)/bailey-jail $(STATIC_DIR)/bailey-guest $(DEBUG)/
	$(RUNNER) $(HASHES) cargo test -p bailey --locked --no-fail-fast

soak: PROFILE := --release
soak: crash-points build ## The tests' long forms, three hours or so; keeps what they tell in bench/results/soak.txt
	@trap 'test -z "$(SUDO)" || $(SUDO) chown -R "$$(id -u):$$(id -g)" "$(CARGO_TARGET_DIR)"' EXIT
	export BAILEY_LONG=1 BAILEY_SOAK_SECONDS=$${BAILEY_SOAK_SECONDS:-600}
	$(SUDO) $(RELEASE)/bailey template prepare
	cases() { $(RUNNER) $(HASHES) cargo test --release --locked "$$@" 2>&1 | tee /dev/stderr; }
	{ cases -p bailey-tree --test it -- --nocapture --test-threads 1 long gc
	  cases -p bailey-control --test it -- --nocapture --test-threads 1 d05
	  cases -p bailey-control --test sim -- --nocapture whatever_fails
	  cases -p bailey --test hostile -- --nocapture --test-threads 1 d01 r20
	  BAILEY_TEST_LARGE=5120 cases -p bailey --test it -- --nocapture a_file_of_any_size
	} | grep -E '^test |: [0-9.]+ s|^[0-9]+ (s:|lives|MiB)' >bench/results/soak.txt

fuzz: setup ## Fuzz TARGET, or each, for SECONDS (60); an input that fails becomes a file of fuzz/corpus/
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT
	for target in $(or $(TARGET),$$(cargo +nightly fuzz list)); do
	    # What reaches new code is kept apart from the seeds, which are in the repository.
	    grown=$(CARGO_TARGET_DIR)/fuzz-corpus/$$target; mkdir -p $$grown
	    TMPDIR=$$scratch cargo +nightly fuzz run $$target $$grown fuzz/corpus/$$target -- \
	        -max_total_time=$(or $(SECONDS),60) -max_len=65536 -timeout=10 -artifact_prefix=fuzz/corpus/$$target/
	done

lint: setup
	@cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p bailey-crash --features crash-points --locked -- -D warnings

fmt:
	@cargo fmt --all

serve: build ## Start a server on this machine (data in /var/lib/bailey)
	@exec $(SUDO) $(RELEASE)/bailey serve $(ARGS)

bench: build ## Measure, against baselines in the same run; writes bench/results/
	@$(RUNNER) cargo bench --locked -p bailey-node --bench exec
	$(RUNNER) $(HASHES) cargo bench --locked -p bailey --bench run --bench load --bench tree --bench git --bench audit --bench identity --bench policy

setup:
	@scripts/setup.sh $(NEEDS)
