# eggrun: an OCI runtime that keeps containers to a list of domains.

comma    := ,
GO       ?= $(shell demo/findgo)
PREFIX   ?= /usr/local
DESTDIR  ?=
FUZZTIME ?= 30s
BIN      ?= bin/eggrun
TAGS     := netgo,osusergo,urfave_cli_no_docs$(if $(EXTRA_TAGS),$(comma)$(EXTRA_TAGS))
LDFLAGS  := -s -w -linkmode external -extldflags -static

# An older Go fetches the one that go.mod asks for; some distributions turn that
# off by default.
export GOTOOLCHAIN ?= auto

.DEFAULT_GOAL := help

help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: packages-build ## build bin/eggrun and bin/eggrun-criu, static
	CGO_ENABLED=1 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN) .
	CGO_ENABLED=1 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(dir $(BIN))eggrun-criu ./criu

demo: ## show what it does: a container's life, an allowlist, podman (root)
	@demo/run

test: need-root packages-test build ## vet and run all tests (root)
	$(GO) vet -tags $(TAGS) ./...
	$(GO) test -tags $(TAGS) -timeout 15m $(TESTFLAGS) ./...

integration: need-root packages-test build ## run only the tests that drive bin/eggrun (root)
	$(GO) test -timeout 15m $(TESTFLAGS) ./integration/

test-vm: need-root packages-vm ## run those tests in guests with systemd, cgroup v2 and a normal user (root)
	integration/vm/run $(PLACES)

fuzz: packages-build ## run each fuzz target for FUZZTIME, 30s by default
	@grep -r --include='*_test.go' -o '^func Fuzz[A-Za-z0-9]*' . | sed 's|/[^/]*:func | |' | sort | \
	while read -r folder name; do \
		echo "$$folder $$name"; \
		$(GO) test -tags $(TAGS) -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s "$$folder" </dev/null || exit 1; \
	done

bench: need-root packages-test build ## compare create, start and delete with runc, and RUNTIMES (root)
	$(GO) run ./bench $(BENCHFLAGS) $(abspath $(BIN)) $$(command -v runc) $(RUNTIMES)

lint: ## gofmt, go vet, and golangci-lint where it is installed
	@out=$$(gofmt -l .); [ -z "$$out" ] || { echo "run gofmt -w on:" $$out >&2; exit 1; }
	$(GO) vet -tags $(TAGS) ./...
	$(GO) vet -tags $(TAGS),crashtest ./container/
	CGO_ENABLED=0 $(GO) vet ./internal/seccomp/
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; else \
		echo "golangci-lint is not installed; go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@latest"; fi

man: ## show the manual page
	@man ./man/eggrun.8

install: build ## install program, manual page, examples and podman's configuration below PREFIX and /etc
	install -D $(BIN) $(DESTDIR)$(PREFIX)/bin/eggrun
	install -D $(dir $(BIN))eggrun-criu $(DESTDIR)$(PREFIX)/libexec/eggrun/eggrun-criu
	install -D -m 644 man/eggrun.8 $(DESTDIR)$(PREFIX)/share/man/man8/eggrun.8
	install -D -m 644 contrib/policy.toml $(DESTDIR)$(PREFIX)/share/doc/eggrun/policy.toml
	install -D -m 644 contrib/containerd.toml $(DESTDIR)$(PREFIX)/share/doc/eggrun/containerd.toml
	install -D -m 644 contrib/eggrun.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/eggrun
	install -d $(DESTDIR)/etc/containers/containers.conf.d
	sed 's|@PREFIX@|$(PREFIX)|' contrib/50-eggrun.conf >$(DESTDIR)/etc/containers/containers.conf.d/50-eggrun.conf

clean: ## remove what was built
	rm -rf bin

# What is missing is installed, as root; nothing happens when all is there.
packages-build packages-test packages-vm:
	@demo/packages $(@:packages-%=%)

need-root:
	@[ "$$(id -u)" = 0 ] || { echo "this needs root, for making namespaces, mounts and cgroups" >&2; exit 1; }

# The packages come before what needs them.
.NOTPARALLEL:

.PHONY: help build demo test integration test-vm fuzz bench lint man install clean packages-build packages-test packages-vm need-root
