// Package routes names endpoints by the methods of their routes, for frameworks that have a route for each method.
package routes

import (
	"slices"
	"strings"
)

// allMethods is how many a framework has at least when it is asked for every method.
const allMethods = 9

// Name is the endpoint's name: the methods in the order of the alphabet, and the pattern. HEAD is GET. A route for every method
// has none.
func Name(methods []string, pattern string) string {
	if len(methods) >= allMethods {
		return pattern
	}
	var named []string
	for _, method := range methods {
		if method == "HEAD" {
			method = "GET"
		}
		named = append(named, method)
	}
	slices.Sort(named)
	return strings.Join(slices.Compact(named), ",") + " " + pattern
}
