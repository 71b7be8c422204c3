// Package service finds the service in front of the keys of limits that are written at an endpoint: equal settings share
// their counters, so endpoints of equal names in different programs would.
package service

import (
	"runtime/debug"
	"slices"
)

// Of returns the service's name and where it is from. option is nil where the program has not given one; own is the
// program's own name, or "".
func Of(option *string, env func(string) (string, bool), own string) (name, from string) {
	if option != nil {
		return *option, "WithService"
	}
	for _, variable := range []string{"RATELIMIT_SERVICE", "OTEL_SERVICE_NAME"} {
		if name, given := env(variable); given {
			return name, "$" + variable
		}
	}
	if own != "" {
		return own, "the main module"
	}
	return "", ""
}

// MainModule is the path of the program's main module, or "".
func MainModule() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.Main.Path
}

// IsCommon reports whether many services have this name, or none is given: so they share counters on one daemon. The last
// one is that of a program which `go run` was given as files.
func IsCommon(name string) bool {
	return slices.Contains([]string{"", "app", "main", "__main__", "FastAPI", "command-line-arguments"}, name)
}
