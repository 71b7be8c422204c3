// Package names finds endpoints that have the same name: their limits would share counters.
package names

import "sync"

// A Registry knows whose the names are that limits count by.
type Registry struct {
	mu     sync.Mutex
	owners map[string][]any
}

// Names come from patterns. If a program makes them of requests, the registry must not grow with these.
const namesMax = 10000

type written struct{}

// Claim reports whether a gate may use a name. It may not if another gate has it; unless the program has written the name
// for both, or the other one stands in front of it, at the same endpoint.
func (r *Registry) Claim(name string, gate any, isWritten bool, isInFront func(owner any) bool) bool {
	if isWritten {
		gate = written{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	owners := r.owners[name]
	for _, owner := range owners {
		if owner == gate {
			return true
		}
	}
	for _, owner := range owners {
		if !isInFront(owner) {
			return false
		}
	}
	if r.owners == nil {
		r.owners = map[string][]any{}
	}
	if len(r.owners) < namesMax {
		r.owners[name] = append(owners, gate)
	}
	return true
}
