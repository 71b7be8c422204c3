// Package gate applies limits to the requests of a framework. It is what rlhttp and rlgrpc are made of; use it to write
// middleware for another framework.
//
// R is the type of a request, O that of its outcome, such as an HTTP status.
package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// ErrNoLimit, returned by a Key, lets the request pass this limit.
var ErrNoLimit = errors.New("this request is not limited")

// A Limit is one of the limits of a Gate.
type Limit[R, O any] struct {
	Policy      string                  // a name, an inline policy, or a limit such as "10/5s"
	PolicyOf    func(R) (string, error) // not nil: the policy of a request, in place of Policy
	Name        string                  // of an inline policy: what answers call it
	Key         func(R) (string, error) // an empty key is an error
	Cost        func(R) int64           // nil: 1
	Skip        func(R) bool            // nil: no request is skipped
	OnError     ratelimit.OnError       // nil: the client's
	Slot        bool                    // take a slot, and hold it until Leave
	ChargeWhen  func(R, O) bool         // not nil: charge the cost only where this returns true
	PerEndpoint bool                    // the key gets the endpoint's name in front, as with inline policies
	Off         bool                    // as if it were not there
}

// A Gate holds the limits of one endpoint, or of many.
type Gate[R, O any] struct {
	client   *ratelimit.Client
	service  string
	endpoint func(R) string
	limits   []Limit[R, O]
}

// New returns a gate. endpoint names the endpoint of a request; inline policies count by the client's service, that name
// and the key. It panics if a limit is wrong.
func New[R, O any](client *ratelimit.Client, endpoint func(R) string, limits ...Limit[R, O]) *Gate[R, O] {
	g := &Gate[R, O]{client: client, endpoint: endpoint, limits: slices.Clone(limits)}
	for i := range g.limits {
		limit := &g.limits[i]
		if limit.ChargeWhen != nil && limit.Slot {
			panic("ratelimit: a limit is either a Slot or has ChargeWhen")
		}
		if limit.PolicyOf == nil {
			policy, err := limit.complete(limit.Policy)
			if err != nil {
				panic(err)
			}
			limit.Policy = policy
			if !limit.Off {
				client.Expect(policy)
			}
		}
		if limit.PolicyOf != nil || ratelimit.IsInline(limit.Policy) {
			g.service = client.Service()
		}
	}
	return g
}

// complete reads a policy, and gives it the limit's name.
func (l *Limit[R, O]) complete(policy string) (string, error) {
	policy, err := ratelimit.ParsePolicy(policy)
	switch {
	case err != nil || l.Name == "":
		return policy, err
	case ratelimit.IsInline(policy):
		return ratelimit.Named(policy, l.Name)
	case l.PolicyOf != nil:
		return policy, nil
	}
	return "", &ratelimit.RefusedError{Code: ratelimit.BadArgument,
		Message: fmt.Sprintf("the name %q is for a limit with settings of its own; the policy %s has one", l.Name, policy)}
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

// A charge is decided by the outcome. The units of one without a reservation were charged, and are refunded.
type charge[R, O any] struct {
	asked[R, O]
	reservation *ratelimit.Reservation
}

// An asked limit has passed Skip and has its key.
type asked[R, O any] struct {
	*Limit[R, O]
	policy string
	key    string
	cost   int64
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
			slot, decision, err := g.client.Acquire(ctx, one.policy, one.key)
			if slot != nil {
				entry.slots = append(entry.slots, slot)
			}
			entry.judge(ctx, decision, err, one)
			entry.Slot = entry.Verdict == Denied
		case one.ChargeWhen != nil:
			made, decision, err := g.charge(ctx, one)
			if err == nil && decision.Allowed {
				entry.charges = append(entry.charges, made)
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
		decision, err := g.client.Check(ctx, plain[0].policy, plain[0].key, ratelimit.Cost(plain[0].cost))
		delay = decision.Delay()
		entry.judge(ctx, decision, err, plain...)
	} else if len(plain) > 1 {
		items := make([]ratelimit.Item, len(plain))
		for i, one := range plain {
			items[i] = ratelimit.Of(one.policy, one.key, ratelimit.Cost(one.cost))
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
		policy, err := limit.policyOf(request)
		if errors.Is(err, ErrNoLimit) {
			continue
		}
		if err != nil {
			return nil, err
		}
		key, err := limit.Key(request)
		switch {
		case errors.Is(err, ErrNoLimit):
			continue
		case err != nil:
			return nil, err
		case key == "":
			return nil, &ratelimit.RefusedError{Code: ratelimit.BadArgument,
				Message: fmt.Sprintf("the key for the limit %s is empty", policy)}
		}
		if limit.PerEndpoint || ratelimit.IsInline(policy) {
			key = ratelimit.JoinKey(g.endpoint(request)) + "|" + key
		}
		if g.service != "" && ratelimit.IsInline(policy) {
			key = ratelimit.JoinKey(g.service) + "|" + key
		}

		for _, earlier := range all {
			if earlier.policy == policy && earlier.key == key {
				continue next
			}
		}
		one := asked[R, O]{Limit: limit, policy: policy, key: key, cost: 1}
		if limit.Cost != nil {
			one.cost = limit.Cost(request)
		}
		if one.cost < 0 {
			return nil, &ratelimit.RefusedError{Code: ratelimit.BadArgument,
				Message: fmt.Sprintf("the cost for the limit %s is below 0", policy)}
		}
		all = append(all, one)
	}
	return all, nil
}

func (l *Limit[R, O]) policyOf(request R) (string, error) {
	if l.PolicyOf == nil {
		return l.Policy, nil
	}
	policy, err := l.PolicyOf(request)
	if err != nil {
		return "", err
	}
	return l.complete(policy)
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
				break
			}
		}
		e.gate.client.LogUndecided(unavailable, e.Verdict == Closed)
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

// Tightest is the decision to show: of those that denied, or that with least left. False: no decision was made.
func (e *Entry[R, O]) Tightest() (ratelimit.Decision, bool) {
	if e.Verdict == Denied {
		return e.Decision, true
	}
	if len(e.Decided) == 0 {
		return ratelimit.Decision{}, false
	}
	tightest := e.Decided[0]
	for _, one := range e.Decided[1:] {
		if one.Of != "" && (tightest.Of == "" || one.Remaining < tightest.Remaining) {
			tightest = one
		}
	}
	return tightest, true
}

// Watches reports whether Leave needs the outcome.
func (e *Entry[R, O]) Watches() bool { return len(e.charges) > 0 }

// charge reserves the cost. A daemon that does not reserve by inline policies charges it for now.
func (g *Gate[R, O]) charge(ctx context.Context, one asked[R, O]) (charge[R, O], ratelimit.Decision, error) {
	if ratelimit.IsInline(one.policy) && !g.client.Has("reserve_inline") {
		decision, err := g.client.Check(ctx, one.policy, one.key, ratelimit.Cost(one.cost))
		return charge[R, O]{asked: one}, decision, err
	}
	reservation, decision, err := g.client.Reserve(ctx, one.policy, one.key, one.cost)
	return charge[R, O]{one, reservation}, decision, err
}

func (c *charge[R, O]) giveBack(client *ratelimit.Client) {
	switch {
	case c.reservation != nil:
		c.reservation.Cancel(context.Background())
	case c.cost > 0:
		client.Refund(context.Background(), c.policy, c.key, c.cost)
	}
}

// Leave ends a request that has passed: slots are given back, and reservations charged or cancelled. Where a ChargeWhen
// panics, its reservation and those that follow are cancelled.
func (e *Entry[R, O]) Leave(outcome O) {
	defer e.giveBack()

	for len(e.charges) > 0 {
		charge := e.charges[0]
		counts := charge.ChargeWhen(e.request, outcome)
		e.charges = e.charges[1:]
		if !counts {
			charge.giveBack(e.gate.client)
		} else if charge.reservation != nil {
			charge.reservation.Settle(context.Background(), charge.cost)
		}
	}
}

func (e *Entry[R, O]) giveBack() {
	for _, charge := range e.charges {
		charge.giveBack(e.gate.client)
	}
	for _, slot := range e.slots {
		slot.Release()
	}
	e.charges, e.slots = nil, nil
}
