package spec

import (
	"math"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func translateHooks(src *source, plan *Plan) error {
	if src.Hooks == nil {
		return nil
	}
	hooks := src.Hooks
	for _, list := range []struct {
		name  string
		hooks []specs.Hook
	}{
		{"hooks.prestart", hooks.Prestart}, //nolint:staticcheck // deprecated, still to be run
		{"hooks.createRuntime", hooks.CreateRuntime},
		{"hooks.createContainer", hooks.CreateContainer},
		{"hooks.startContainer", hooks.StartContainer},
		{"hooks.poststart", hooks.Poststart},
		{"hooks.poststop", hooks.Poststop},
	} {
		for i := range list.hooks {
			if err := checkHook(at(list.name, i), &list.hooks[i]); err != nil {
				return err
			}
		}
	}
	plan.Hooks = *hooks
	plan.CreateContainerHooks = hooks.CreateContainer
	plan.StartContainerHooks = hooks.StartContainer
	return nil
}

// maxTimeout is what a time.Duration holds.
const maxTimeout = int64(math.MaxInt64 / time.Second)

func checkHook(field string, hook *specs.Hook) error {
	if err := absolute(field+".path", hook.Path); err != nil {
		return err
	}
	if hook.Timeout != nil && (*hook.Timeout <= 0 || int64(*hook.Timeout) > maxTimeout) {
		return invalidValue(field+".timeout", *hook.Timeout, "must be from 1 to %d seconds", maxTimeout)
	}
	for i, arg := range hook.Args {
		if err := noNUL(at(field+".args", i), arg); err != nil {
			return err
		}
	}
	for i, variable := range hook.Env {
		if err := noNUL(at(field+".env", i), variable); err != nil {
			return err
		}
	}
	return nil
}
