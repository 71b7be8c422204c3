// Package gate applies limits to the requests of a framework. It is what rlhttp and rlgrpc are made of; use it to write
// middleware for another framework.
//
// R is the type of a request, O that of its outcome, such as an HTTP status.
package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// ErrNoLimit, returned by a Key, lets the request pass this limit.
var ErrNoLimit = errors.New("this request is not limited")

// A Limit is one of the limits of a Gate.
type Limit[R, O any] struct {
	Policy      string                  // a name, or an inline policy
	Key         func(R) (string, error) // an empty key is an error
	Cost        func(R) int64           // nil: 1
	Skip        func(R) bool            // nil: no request is skipped
	OnError     ratelimit.OnError       // nil: the client's
	Slot        bool                    // take a slot, and hold it until Leave
	ChargeWhen  func(R, O) bool         // not nil: reserve the cost, and charge it only where this returns true
	PerEndpoint bool                    // the key gets the endpoint's name in front, as with inline policies
	Off         bool                    // as if it were not there
}

// A Gate holds the limits of one endpoint, or of many.
type Gate[R, O any] struct {
	client   *ratelimit.Client
	endpoint func(R) string
	limits   []Limit[R, O]
}

// New returns a gate. endpoint names the endpoint of a request; inline policies count by that name and the key. It
// panics if the settings of a limit contradict each other.
func New[R, O any](client *ratelimit.Client, endpoint func(R) string, limits ...Limit[R, O]) *Gate[R, O] {
	for _, limit := range limits {
		if limit.ChargeWhen != nil && ratelimit.IsInline(limit.Policy) {
			panic("ratelimit: ChargeWhen needs a policy with a name")
		}
		if limit.ChargeWhen != nil && limit.Slot {
			panic("ratelimit: a limit is either a Slot or has ChargeWhen")
		}
		if !limit.Off {
			client.Expect(limit.Policy)
		}
	}
	return &Gate[R, O]{client: client, endpoint: endpoint, limits: limits}
}

// A Verdict is what to do with a request.
type Verdict int

// The verdicts.
const (
	Pass   Verdict = iota // go on; call Leave at the end
	Denied                // the answer is no: see Decision
	Closed                // there was no answer, and OnError denies: see Err
	Wrong                 // the program or the configuration is wrong: see Err
	Gone                  // the caller has gone; do nothing
)

// An Entry is how a request came to a gate.
type Entry[R, O any] struct {
	Verdict  Verdict
	Decision ratelimit.Decision   // Denied: of the limit or limits that denied
	Decided  []ratelimit.Decision // what was decided, one for each limit: for headers
	Slot     bool                 // Denied: by a concurrency limit
	Err      error

	gate    *Gate[R, O]
	request R
	slots   []*ratelimit.Slot
	charges []charge[R, O]
}

type charge[R, O any] struct {
	reservation *ratelimit.Reservation
	when        func(R, O) bool
	cost        int64
}

// An asked limit has passed Skip and has its key.
type asked[R, O any] struct {
	*Limit[R, O]
	key  string
	cost int64
}

// Enter decides a request. First it takes slots, then it makes reservations, then it asks for all other limits in one
// request; where one denies, what was taken before is given back.
func (g *Gate[R, O]) Enter(ctx context.Context, request R) *Entry[R, O] {
	entry := &Entry[R, O]{gate: g, request: request}
	if !g.client.Enabled() {
		return entry
	}
	all, err := g.ask(request)
	if err != nil {
		entry.Verdict, entry.Err = Wrong, err
		return entry
	}

	passed := false
	defer func() { // also where OnError panics
		if !passed {
			entry.giveBack()
		}
	}()

	var plain []asked[R, O]
	var delay time.Duration
	for _, one := range all {
		switch {
		case one.Slot:
			slot, decision, err := g.client.Acquire(ctx, one.Policy, one.key)
			if slot != nil {
				entry.slots = append(entry.slots, slot)
			}
			entry.judge(ctx, decision, err, one)
			entry.Slot = entry.Verdict == Denied
		case one.ChargeWhen != nil:
			reservation, decision, err := g.client.Reserve(ctx, one.Policy, one.key, one.cost)
			if reservation != nil {
				entry.charges = append(entry.charges, charge[R, O]{reservation, one.ChargeWhen, one.cost})
			}
			entry.judge(ctx, decision, err, one)
		default:
			plain = append(plain, one)
		}
		if entry.Verdict != Pass {
			return entry
		}
	}

	if len(plain) == 1 {
		decision, err := g.client.Check(ctx, plain[0].Policy, plain[0].key, ratelimit.Cost(plain[0].cost))
		delay = decision.Delay()
		entry.judge(ctx, decision, err, plain...)
	} else if len(plain) > 1 {
		items := make([]ratelimit.Item, len(plain))
		for i, one := range plain {
			items[i] = ratelimit.Of(one.Policy, one.key, ratelimit.Cost(one.cost))
		}
		decision, err := g.client.CheckAll(ctx, items)
		delay = decision.Delay()
		entry.judge(ctx, decision, err, plain...)
	}
	if entry.Verdict == Pass && delay > 0 && !slept(ctx, delay) {
		entry.Verdict = Gone
	}
	passed = entry.Verdict == Pass
	return entry
}

// ask finds out which limits count for a request. Of equal ones it keeps the first.
func (g *Gate[R, O]) ask(request R) ([]asked[R, O], error) {
	var all []asked[R, O]
next:
	for i := range g.limits {
		limit := &g.limits[i]
		if limit.Off || (limit.Skip != nil && limit.Skip(request)) {
			continue
		}
		key, err := limit.Key(request)
		switch {
		case errors.Is(err, ErrNoLimit):
			continue
		case err != nil:
			return nil, err
		case key == "":
			return nil, &ratelimit.RefusedError{Code: ratelimit.BadArgument,
				Message: fmt.Sprintf("the key for the limit %s is empty", limit.Policy)}
		}
		if limit.PerEndpoint || ratelimit.IsInline(limit.Policy) {
			key = ratelimit.JoinKey(g.endpoint(request)) + "|" + key
		}

		for _, earlier := range all {
			if earlier.Policy == limit.Policy && earlier.key == key {
				continue next
			}
		}
		one := asked[R, O]{Limit: limit, key: key, cost: 1}
		if limit.Cost != nil {
			one.cost = limit.Cost(request)
		}
		all = append(all, one)
	}
	return all, nil
}

// judge makes a verdict of an answer about these limits.
func (e *Entry[R, O]) judge(ctx context.Context, decision ratelimit.Decision, err error, limits ...asked[R, O]) {
	var unavailable *ratelimit.UnavailableError
	switch {
	case err == nil:
		if decision.Members != nil {
			e.Decided = append(e.Decided, decision.Members...)
		} else {
			e.Decided = append(e.Decided, decision)
		}
		if !decision.Allowed {
			e.Verdict, e.Decision = Denied, decision
		}
	case !errors.As(err, &unavailable):
		e.Verdict, e.Err = Wrong, err
	case unavailable.Kind == ratelimit.KindCancelled && ctx.Err() != nil:
		e.Verdict, e.Err = Gone, err
	default:
		for _, limit := range limits {
			onError := limit.OnError
			if onError == nil {
				onError = e.gate.client.OnError()
			}
			if !onError(ctx, unavailable) {
				e.Verdict, e.Err = Closed, err
				return
			}
		}
	}
}

func slept(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Watches reports whether Leave needs the outcome.
func (e *Entry[R, O]) Watches() bool { return len(e.charges) > 0 }

// Leave ends a request that has passed: slots are given back, and reservations charged or cancelled. Where a ChargeWhen
// panics, its reservation and those that follow are cancelled.
func (e *Entry[R, O]) Leave(outcome O) {
	defer e.giveBack()

	for len(e.charges) > 0 {
		charge, used := e.charges[0], int64(0)
		if charge.when(e.request, outcome) {
			used = charge.cost
		}
		e.charges = e.charges[1:]
		charge.reservation.Settle(context.Background(), used)
	}
}

func (e *Entry[R, O]) giveBack() {
	for _, charge := range e.charges {
		charge.reservation.Cancel(context.Background())
	}
	for _, slot := range e.slots {
		slot.Release()
	}
	e.charges, e.slots = nil, nil
}
