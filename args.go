package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst returns the arguments of this process with the flags of the verb
// before its other arguments, since runc takes "update ID --memory 1g", while
// package cli ends the flags at ID. What follows the id of exec and ps is the
// command line of another program.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) == 0 || args[len(args)-1] == "--"+cli.BashCompletionFlag.Names()[0] {
		return args
	}
	at := 1 + flagsEnd(app.Flags, args[1:])
	if at >= len(args) {
		return args
	}
	command := app.Command(args[at])
	if command == nil || command.Name == "exec" || command.Name == "ps" {
		return args
	}
	if at+1 < len(args) {
		if sub := command.Command(args[at+1]); sub != nil {
			command, at = sub, at+1
		}
	}
	front, rest := slices.Clone(args[:at+1]), args[at+1:]
	var others []string
	for len(rest) > 0 {
		end := flagsEnd(command.Flags, rest)
		front = append(front, rest[:end]...)
		rest = rest[end:]
		if end > 0 && front[len(front)-1] == "--" {
			break
		}
		if len(rest) > 0 {
			others = append(others, rest[0])
			rest = rest[1:]
		}
	}
	return slices.Concat(front, others, rest)
}

// flagsEnd returns how many of the arguments are flags and their values, and a
// "--" that ends them.
func flagsEnd(flags []cli.Flag, args []string) int {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return i + 1
		}
		if arg == "-" || !strings.HasPrefix(arg, "-") {
			return i
		}
		if !strings.Contains(arg, "=") && takesValue(flags, strings.TrimLeft(arg, "-")) {
			i++
		}
	}
	return len(args)
}

func takesValue(flags []cli.Flag, name string) bool {
	for _, flag := range flags {
		if slices.Contains(flag.Names(), name) {
			documented, ok := flag.(cli.DocGenerationFlag)
			return ok && documented.TakesValue()
		}
	}
	return false
}
