# eggrun: an OCI runtime that keeps containers to a list of domains.

GO      ?= go
PREFIX  ?= /usr/local
TAGS    := netgo,osusergo,urfave_cli_no_docs
LDFLAGS := -s -w -linkmode external -extldflags -static

.DEFAULT_GOAL := help

help: ## show this help
	@sed -n 's/^\([a-z][a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | column -t -s "$$(printf '\t')"

build: ## build bin/eggrun, static
	CGO_ENABLED=1 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o bin/eggrun .

.PHONY: help build
