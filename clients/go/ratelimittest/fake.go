// Package ratelimittest helps to test programs that use ratelimit: a Fake that answers as the test sets it, without a daemon,
// and Start, which runs a real daemon whose clock only the test moves.
package ratelimittest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/tinylib/msgp/msgp"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// A Fake answers in place of a daemon. At first it allows everything. It does not count.
type Fake struct {
	mu      sync.Mutex
	denied  map[string]int64 // policies, and when to try again, in ms
	failure error
	calls   []Call
	slots   map[string]bool
	lastID  int
}

// A Call is what the Fake was asked. An item of CheckAll or CheckMany is one of its own.
type Call struct {
	Method string // as in the protocol: "check", "check_all", "acquire", ...
	Policy string // an inline policy: its settings as JSON
	Key    string
	Units  int64 // cost, estimate or refunded units
}

// NewFake returns a Fake that allows everything.
func NewFake() *Fake { return &Fake{denied: map[string]int64{}, slots: map[string]bool{}} }

// Client returns a client that the Fake answers.
func (f *Fake) Client(options ...ratelimit.ClientOption) *ratelimit.Client {
	own := []ratelimit.ClientOption{ratelimit.WithTransport(f.answer), ratelimit.WithEnabled(true)}
	return ratelimit.New(append(own, options...)...)
}

// AllowAll is how a Fake begins: it takes Deny and Unavailable back.
func (f *Fake) AllowAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.denied)
	f.failure = nil
}

// Deny has every check, acquire and reserve of a policy denied from now on, also within CheckAll. retryAfterMS is in
// milliseconds; -1: waiting does not help.
func (f *Fake) Deny(policy string, retryAfterMS int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denied[policy] = retryAfterMS
}

// Unavailable has every call fail in this way from now on.
func (f *Fake) Unavailable(kind ratelimit.Kind) {
	maybe := slices.Contains([]ratelimit.Kind{ratelimit.KindTimeout, ratelimit.KindLost, ratelimit.KindProtocol,
		ratelimit.KindStoreUnavailable}, kind)
	f.Fail(&ratelimit.UnavailableError{Kind: kind, MaybeCharged: maybe, Message: "as the test wants it"})
}

// Fail has every call end with this error from now on.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
}

// Calls returns what was asked so far, in order.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// HeldSlots is how many slots are held.
func (f *Fake) HeldSlots() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.slots)
}

// answer is the client's Transport.
func (f *Fake) answer(_ context.Context, method string, packed []byte) ([]byte, error) {
	value, _, err := msgp.ReadIntfBytes(packed)
	if err != nil {
		return nil, err
	}
	params, _ := value.([]any)

	f.mu.Lock()
	defer f.mu.Unlock()
	calls := callsOf(method, params)
	f.calls = append(f.calls, calls...)
	if f.failure != nil {
		return nil, f.failure
	}

	switch method {
	case "check_many":
		decisions := []any{}
		for _, call := range calls {
			decisions = append(decisions, f.decide(call))
		}
		return msgp.AppendIntf(nil, decisions)
	case "check_all":
		return msgp.AppendIntf(nil, f.decideAll(calls))
	case "reset":
		return msgp.AppendIntf(nil, map[string]any{"removed": true})
	case "release":
		slot := fmt.Sprint(params...)
		held := f.slots[slot]
		delete(f.slots, slot)
		return msgp.AppendIntf(nil, map[string]any{"released": held})
	case "policies":
		return msgp.AppendIntf(nil, []any{map[string]any{"name": "*"}}) // there are all of them
	case "ping", "stats", "version":
		return msgp.AppendIntf(nil, map[string]any{})
	case "refund", "settle", "cancel":
		decision := decision(true, 0, 0)
		decision["refunded"] = calls[0].Units
		return msgp.AppendIntf(nil, decision)
	}

	decision := f.decide(calls[0])
	if decision["allowed"] == true && (method == "acquire" || method == "reserve") {
		f.lastID++
		id := fmt.Sprintf("fake%028d", f.lastID)
		decision["reservation"] = id
		if method == "acquire" {
			decision["slot"] = id
			f.slots[id] = true
		}
	}
	return msgp.AppendIntf(nil, decision)
}

// callsOf reads the params of a request.
func callsOf(method string, params []any) []Call {
	if method == "check_all" || method == "check_many" {
		var calls []Call
		items, _ := params[0].([]any)
		for _, item := range items {
			calls = append(calls, callsOf(method+" item", item.([]any))...)
			calls[len(calls)-1].Method = method
		}
		return calls
	}

	call := Call{Method: method, Units: 1}
	if method == "settle" || method == "release" || method == "peek" {
		call.Units = 0
	}
	for i, param := range params {
		switch value := param.(type) {
		case string:
			if i == 0 {
				call.Policy = value
			} else {
				call.Key = value
			}
		case int64:
			call.Units = value
		case uint64:
			call.Units = int64(value)
		case map[string]any:
			if i == 0 {
				text, _ := json.Marshal(value)
				call.Policy = string(text)
			} else if cost, ok := value["cost"].(int64); ok {
				call.Units = cost
			}
		}
	}
	return []Call{call}
}

func (f *Fake) decide(call Call) map[string]any {
	if ms, denied := f.denied[call.Policy]; denied {
		return decision(false, ms, 0)
	}
	return decision(true, 0, call.Units)
}

func (f *Fake) decideAll(calls []Call) map[string]any {
	whole := decision(true, 0, 0)
	members, total := []any{}, int64(0)
	for _, call := range calls {
		member := f.decide(call)
		if member["allowed"] == false && (whole["allowed"] == true || member["retry_after_ms"] == int64(-1)) {
			whole = decision(false, member["retry_after_ms"].(int64), 0)
			whole["bound_by"] = call.Policy
		}
		members, total = append(members, member), total+call.Units
	}

	whole["members"] = members
	if whole["allowed"] == true {
		whole["granted"] = total
	}
	return whole
}

func decision(allowed bool, retryAfterMS, granted int64) map[string]any {
	remaining := int64(ratelimit.Unlimited)
	if !allowed {
		remaining = 0
	}
	return map[string]any{"allowed": allowed, "limit": int64(ratelimit.Unlimited), "remaining": remaining,
		"retry_after_ms": retryAfterMS, "reset_after_ms": max(retryAfterMS, 0), "granted": granted, "source": "fake",
		"policy_version": int64(0)}
}
