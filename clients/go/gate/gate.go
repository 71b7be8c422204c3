// Package gate applies limits to the requests of a framework. It is what rlhttp and rlgrpc are made of; use it to write
// middleware for another framework.
//
// R is the type of a request, O that of its outcome, such as an HTTP status.
package gate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// ErrNoLimit, returned by a Key or PolicyOf, lets the request pass this limit. Nothing else does, but Skip.
var ErrNoLimit = errors.New("this request is not limited")

// A Limit is one of the limits of a Gate.
type Limit[R, O any] struct {
	Policy      string                  // a name, an inline policy, or a limit such as "10/5s"
	PolicyOf    func(R) (string, error) // not nil: the policy of a request, in place of Policy
	Name        string                  // of an inline policy: what answers call it
	Key         func(R) (string, error) // "": there is no key, and the request is refused
	Cost        func(R) int64           // nil: 1
	Skip        func(R) bool            // nil: no request is skipped
	OnError     ratelimit.OnError       // nil: the client's
	Slot        bool                    // take a slot, and hold it until Leave
	ChargeWhen  func(R, O) bool         // not nil: charge the cost only where this returns true
	ChargeUnits func(R, O) int64        // not nil: charge so many units in place of the cost, which is reserved until then
	PerEndpoint bool                    // the key gets the endpoint's name in front, as with inline policies
	Off         bool                    // as if it were not there

	place int       // 2 for the second limit of its gate that may move, and so on
	said  *saidOnce // what its log has said already
}

type saidOnce struct{ noKey, noPolicy, tooFew atomic.Bool }

// A Place is what a Gate knows of the framework and of the place in which it stands.
type Place[R any] struct {
	Package   string            // for the log
	Endpoint  func(R) string    // names the endpoint of a request; "": the router reports no pattern
	IsWritten bool              // the program has written the endpoint's name
	Same      func(a, b R) bool // is it one request that comes to two places?
	Owner     any               // of the middleware
}

// A Gate holds the limits of one endpoint, or of many.
type Gate[R, O any] struct {
	client  *ratelimit.Client
	service string
	place   Place[R]
	limits  []Limit[R, O]
	lastLog atomic.Int64 // when a mistake was last logged
}

// New returns a gate. Inline policies count by the client's service, the endpoint's name and the key. It panics if a limit
// is wrong.
func New[R, O any](client *ratelimit.Client, place Place[R], limits ...Limit[R, O]) *Gate[R, O] {
	g := &Gate[R, O]{client: client, place: place, limits: slices.Clone(limits)}
	nMoving := 0
	for i := range g.limits {
		limit := &g.limits[i]
		limit.said = &saidOnce{}
		if limit.isConditional() && limit.Slot {
			panic("ratelimit: a limit is either a Slot or has ChargeWhen")
		}
		if limit.PolicyOf != nil {
			nMoving++
			limit.place = nMoving
		} else {
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

func (l *Limit[R, O]) isConditional() bool { return l.ChargeWhen != nil || l.ChargeUnits != nil }

// allows: ratelimit.Allow is written at this limit. A function that decides is not that.
func (l *Limit[R, O]) allows() bool {
	return l.OnError != nil && reflect.ValueOf(l.OnError).Pointer() == reflect.ValueOf(ratelimit.Allow).Pointer()
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
	return "", wrong("the name %q is for a limit with settings of its own; the policy %s has one", l.Name, policy)
}

func wrong(format string, values ...any) error {
	return &ratelimit.RefusedError{Code: ratelimit.BadArgument, Message: fmt.Sprintf(format, values...)}
}

// A Verdict is what to do with a request.
type Verdict int

// The verdicts.
const (
	Pass   Verdict = iota // go on; call Leave at the end
	Denied                // the answer is no: see Decision
	Closed                // there was no answer, and OnError denies, or there is no key: see Err
	Wrong                 // the program or the configuration is wrong: see Err
	Gone                  // the caller has gone; do nothing
)

// An Entry is how a request came to a gate.
type Entry[R, O any] struct {
	Verdict  Verdict
	Decision ratelimit.Decision // Denied: of the limit or limits that denied
	Slot     bool               // Denied: by a concurrency limit
	Err      error
	Note     any // of the middleware

	gate     *Gate[R, O]
	request  R
	outer    *Entry[R, O] // of the same request, at the place before this one
	endpoint string       // "": not needed so far
	held     []*held[R, O]
}

// held is a limit that a request was asked for, and what it took.
type held[R, O any] struct {
	*Limit[R, O]
	policy string
	key    string
	cost   int64
	free   int64 // units that an unconditional limit of the same policy and key has charged already

	isTaken     bool // it was granted, and not given back
	decision    ratelimit.Decision
	slot        *ratelimit.Slot
	reservation *ratelimit.Reservation // nil: none, or the units were charged, and are refunded
	also        []*Limit[R, O]         // conditional ones of the same policy and key
	replaces    []*held[R, O]          // conditional ones of an earlier place, which this one charges in any case
}

// Enter decides a request. First it takes slots, then it makes reservations, then it asks for all other limits in one
// request; where one denies, what was taken before is given back, at earlier places of this request, too.
func (g *Gate[R, O]) Enter(ctx context.Context, request R) *Entry[R, O] {
	entry := &Entry[R, O]{gate: g, request: request}
	if !g.client.Enabled() {
		return entry
	}
	if outer := entryOf[R, O](ctx); outer != nil && g.place.Same(outer.request, request) {
		entry.outer = outer
	}

	passed := false
	defer func() { // also where OnError panics
		if !passed {
			entry.giveBack(ctx)
		}
	}()
	entry.decide(ctx)
	if passed = entry.Verdict == Pass; passed {
		for _, one := range entry.held {
			for _, replaced := range one.replaces {
				replaced.giveBack(ctx, g.client)
			}
		}
	} else if entry.Verdict == Denied || entry.Verdict == Closed {
		for outer := entry.outer; outer != nil; outer = outer.outer {
			outer.giveBack(ctx)
		}
	}
	if decision, decided := entry.Tightest(); decided {
		g.client.ReportRequest(ctx, decision)
	}
	return entry
}

func (e *Entry[R, O]) decide(ctx context.Context) {
	if e.ask(); e.Verdict != Pass {
		return
	}

	var plain []*held[R, O]
	client := e.gate.client
	for _, one := range e.held {
		var decision ratelimit.Decision
		var err error
		switch {
		case one.Slot:
			one.slot, decision, err = client.Acquire(ctx, one.policy, one.key)
		case !one.isConditional():
			plain = append(plain, one)
			continue
		case ratelimit.IsInline(one.policy) && !client.Has("reserve_inline"): // it is charged for now
			decision, err = client.Check(ctx, one.policy, one.key, ratelimit.Cost(one.cost))
		default:
			one.reservation, decision, err = client.Reserve(ctx, one.policy, one.key, one.cost)
		}
		if e.judge(ctx, decision, err, one); e.Verdict != Pass {
			e.Slot = e.Verdict == Denied && one.Slot
			return
		}
	}

	var whole ratelimit.Decision
	var err error
	switch len(plain) {
	case 0:
		return
	case 1:
		whole, err = client.Check(ctx, plain[0].policy, plain[0].key, ratelimit.Cost(plain[0].cost))
	default:
		items := make([]ratelimit.Item, len(plain))
		for i, one := range plain {
			items[i] = ratelimit.Of(one.policy, one.key, ratelimit.Cost(one.cost))
		}
		whole, err = client.CheckAll(ctx, items)
	}
	e.judge(ctx, whole, err, plain...)
	if delay := whole.Delay(); e.Verdict == Pass && delay > 0 && !slept(ctx, delay) {
		e.Verdict = Gone
	}
}

// ask finds out which limits count for a request.
func (e *Entry[R, O]) ask() {
	for i := range e.gate.limits {
		limit := &e.gate.limits[i]
		if limit.Off || (limit.Skip != nil && limit.Skip(e.request)) {
			continue
		}
		one, err := e.asked(limit)
		var missing *missingError
		switch {
		case errors.Is(err, ErrNoLimit):
		case errors.As(err, &missing):
			e.logMissing(limit, missing)
			if !limit.allows() {
				e.Verdict, e.Err = Closed, err
				return
			}
		case err != nil:
			e.Verdict, e.Err = Wrong, err
			return
		default:
			e.add(one)
		}
	}
}

// A missingError: the request has no key, or no policy, for a limit.
type missingError struct{ what string }

func (m *missingError) Error() string { return "no " + m.what }

func (e *Entry[R, O]) asked(limit *Limit[R, O]) (*held[R, O], error) {
	policy, err := e.policyOf(limit)
	if err != nil {
		return nil, err
	}
	key, err := limit.Key(e.request)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil, &missingError{"key"}
	}
	if limit.PerEndpoint || ratelimit.IsInline(policy) {
		endpoint, err := e.endpointName()
		if err != nil {
			return nil, err
		}
		key = ratelimit.JoinKey(endpoint) + "|" + key
	}
	if e.gate.service != "" && ratelimit.IsInline(policy) {
		key = ratelimit.JoinKey(e.gate.service) + "|" + key
	}

	one := &held[R, O]{Limit: limit, policy: policy, key: key, cost: 1}
	if limit.Cost != nil {
		one.cost = limit.Cost(e.request)
	}
	if one.cost < 0 {
		return nil, wrong("the cost for the limit %s is below 0", policy)
	}
	return one, nil
}

// policyOf gives settings that may move, because a function makes them, the endpoint's name as their id.
func (e *Entry[R, O]) policyOf(limit *Limit[R, O]) (string, error) {
	if limit.PolicyOf == nil {
		return limit.Policy, nil
	}
	policy, err := limit.PolicyOf(e.request)
	if err != nil {
		return "", err
	}
	if policy == "" {
		return "", &missingError{"policy"}
	}
	policy, err = limit.complete(policy)
	if err != nil || !ratelimit.IsInline(policy) {
		return policy, err
	}
	id, err := e.endpointName()
	if err != nil {
		return "", err
	}
	if place := e.nMoving() + limit.place; place > 1 {
		id = fmt.Sprintf("%s#%d", id, place)
	}
	return ratelimit.Identified(policy, id)
}

// nMoving is how many limits that may move earlier places of this request have for the same endpoint.
func (e *Entry[R, O]) nMoving() (n int) {
	for outer := e.outer; outer != nil; outer = outer.outer {
		if outer.endpoint != e.endpoint {
			continue
		}
		for _, limit := range outer.gate.limits {
			if limit.PolicyOf != nil {
				n++
			}
		}
	}
	return n
}

// endpointName is the endpoint's name, for limits that count by it. It must be known, and no other endpoint's.
func (e *Entry[R, O]) endpointName() (string, error) {
	if e.endpoint != "" {
		return e.endpoint, nil
	}
	name := e.gate.place.Endpoint(e.request)
	if name == "" {
		return "", wrong("the router reports no pattern for this request, so a limit that counts by endpoint needs a name:" +
			" write EndpointName(\"...\") with it")
	}
	isOuter := func(owner any) bool {
		for outer := e.outer; outer != nil; outer = outer.outer {
			if owner == any(outer.gate) {
				return true
			}
		}
		return false
	}
	if !e.gate.client.Endpoints().Claim(name, e.gate, e.gate.place.IsWritten, isOuter) {
		return "", wrong("two endpoints have the name %q, so their limits would share counters: write EndpointName with"+
			" a name of its own at each, or with the same one at both", name)
	}
	e.endpoint = name
	return name, nil
}

// add asks for a limit as far as equal ones of this request have not: a policy and key is charged once, at the highest cost.
func (e *Entry[R, O]) add(one *held[R, O]) {
	for i, earlier := range e.held {
		switch {
		case !earlier.equals(one):
		case one.Slot:
			return
		case one.isConditional() == earlier.isConditional():
			earlier.cost = max(earlier.cost, one.cost)
			earlier.also = append(earlier.also, one.Limit)
			return
		case earlier.isConditional(): // charged in any case; what more it would cost stays conditional
			earlier.free, earlier.cost = one.cost, earlier.cost-one.cost
			if earlier.cost > 0 {
				break
			}
			e.held[i] = one
			return
		default:
			one.free += earlier.cost
		}
	}

	asked := one.free == 0
	for outer := e.outer; outer != nil; outer = outer.outer {
		for _, earlier := range outer.held {
			switch {
			case !earlier.isTaken || !earlier.equals(one):
			case one.Slot:
				return
			case !earlier.isConditional():
				one.free, asked = one.free+earlier.cost, false
			case one.isConditional():
				earlier.also = append(earlier.also, one.Limit)
				one.free, asked = one.free+earlier.cost, false
			default:
				one.replaces = append(one.replaces, earlier)
			}
		}
	}
	if one.cost -= one.free; one.cost > 0 || asked {
		e.held = append(e.held, one)
	}
}

func (h *held[R, O]) equals(other *held[R, O]) bool {
	return h.policy == other.policy && h.key == other.key && h.Slot == other.Slot
}

// judge makes a verdict of an answer about these limits.
func (e *Entry[R, O]) judge(ctx context.Context, decision ratelimit.Decision, err error, limits ...*held[R, O]) {
	var unavailable *ratelimit.UnavailableError
	switch {
	case err == nil:
		for i, one := range limits {
			one.decision, one.isTaken = decision, decision.Allowed
			if decision.Members != nil {
				one.decision = decision.Members[i]
			}
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

// slept waits; a timer takes no more than 292 years, and no delay is longer.
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

// ---- The places of one request ---------------------------------------------------------------------------------

type entryKey[R, O any] struct{}

func entryOf[R, O any](ctx context.Context) *Entry[R, O] {
	entry, _ := ctx.Value(entryKey[R, O]{}).(*Entry[R, O])
	return entry
}

// Into is the context for what comes next: later places of the same request find this one in it, and DecisionOf the decision.
func (e *Entry[R, O]) Into(ctx context.Context) context.Context {
	return context.WithValue(ctx, entryKey[R, O]{}, e)
}

// Outer is the place before this one of the same request, or nil.
func (e *Entry[R, O]) Outer() *Entry[R, O] { return e.outer }

// Owner is that of the gate's place.
func (e *Entry[R, O]) Owner() any { return e.gate.place.Owner }

// Decided is a decision about one limit.
type Decided struct {
	Policy, Key string
	ratelimit.Decision
}

// Decided is what was decided here, one for each limit. What was given back has the figures after that.
func (e *Entry[R, O]) Decided() []Decided {
	var decided []Decided
	for _, one := range e.held {
		if one.decision.Source != "" {
			decided = append(decided, Decided{one.policy, one.key, one.decision})
		}
	}
	return decided
}

// Tightest is the decision to show, of all places of the request: the one that denied, or that with least left. False: no
// decision was made.
func (e *Entry[R, O]) Tightest() (tightest ratelimit.Decision, decided bool) {
	if e.Verdict == Denied {
		return e.Decision, true
	}
	for place := e; place != nil; place = place.outer {
		for _, one := range place.Decided() {
			if !decided || (one.Of != "" && (tightest.Of == "" || one.Remaining <= tightest.Remaining)) {
				tightest, decided = one.Decision, true
			}
		}
	}
	return tightest, decided
}

// DecisionOf returns the decision about the request of a context; see Tightest.
func DecisionOf[R, O any](ctx context.Context) (ratelimit.Decision, bool) {
	entry := entryOf[R, O](ctx)
	if entry == nil {
		return ratelimit.Decision{}, false
	}
	return entry.Tightest()
}

// ---- The end ---------------------------------------------------------------------------------------------------

// Watches reports whether Leave needs the outcome.
func (e *Entry[R, O]) Watches() bool {
	return slices.ContainsFunc(e.held, func(one *held[R, O]) bool { return one.isConditional() })
}

// Leave ends a request that has passed: slots are given back, and reservations charged or cancelled. Where a ChargeWhen
// panics, its reservation and those that follow are cancelled.
func (e *Entry[R, O]) Leave(outcome O) {
	defer func() {
		for _, one := range slices.Backward(e.held) {
			if one.Slot || one.isConditional() {
				one.giveBack(context.Background(), e.gate.client)
			}
		}
	}()
	for _, one := range e.held {
		if one.isTaken && one.isConditional() {
			e.settle(one, one.units(e.request, outcome))
		}
	}
}

// units is what a conditional limit is charged in the end.
func (h *held[R, O]) units(request R, outcome O) int64 {
	most := int64(0)
	for _, limit := range append([]*Limit[R, O]{h.Limit}, h.also...) {
		switch {
		case limit.ChargeUnits != nil:
			most = max(most, limit.ChargeUnits(request, outcome))
		case limit.ChargeWhen != nil && limit.ChargeWhen(request, outcome):
			most = max(most, h.cost+h.free)
		}
	}
	return max(0, most-h.free)
}

func (e *Entry[R, O]) settle(one *held[R, O], units int64) {
	ctx, client := context.Background(), e.gate.client
	if units == 0 {
		one.giveBack(ctx, client)
		return
	}

	one.isTaken = false
	beyond, charged := units-one.cost, int64(0)
	var err error
	switch {
	case one.reservation != nil:
		var settled ratelimit.Decision
		settled, err = one.reservation.Settle(ctx, units)
		charged = settled.Charged
	case beyond > 0:
		var more ratelimit.Decision
		more, err = client.Check(ctx, one.policy, one.key, ratelimit.AtMost(beyond))
		charged = more.Granted
	case beyond < 0:
		client.Refund(ctx, one.policy, one.key, -beyond)
	}
	if err == nil && charged < beyond && !one.said.tooFew.Swap(true) {
		client.Logger().Warn(e.gate.place.Package+": fewer units were left than ChargeUnits charges; a policy with debt"+
			" charges all of them", "policy", one.policy, "units", units, "charged", one.cost+charged)
	}
}

// giveBack undoes what this place has taken.
func (e *Entry[R, O]) giveBack(ctx context.Context) {
	for _, one := range slices.Backward(e.held) {
		one.giveBack(ctx, e.gate.client)
	}
}

func (h *held[R, O]) giveBack(ctx context.Context, client *ratelimit.Client) {
	if !h.isTaken {
		return
	}
	h.isTaken = false
	ctx = context.WithoutCancel(ctx)
	var after ratelimit.Decision
	var err error
	switch {
	case h.slot != nil:
		h.slot.Release()
		return
	case h.reservation != nil:
		after, err = h.reservation.Cancel(ctx)
	default:
		after, err = client.GiveBack(ctx, h.policy, h.key, h.decision)
	}
	if err == nil && after.Of != "" {
		h.decision.Remaining, h.decision.OfResetMS = after.Remaining, after.OfResetMS
		h.decision.ResetAfterMS = after.ResetAfterMS
	}
}

// ---- The log ---------------------------------------------------------------------------------------------------

const logPause = 10 * time.Second

// LogWrong logs why the verdict is Wrong, at most every ten seconds.
func (e *Entry[R, O]) LogWrong() {
	now, last := time.Now().UnixNano(), e.gate.lastLog.Load()
	if now-last < int64(logPause) || !e.gate.lastLog.CompareAndSwap(last, now) {
		return
	}
	e.gate.client.Logger().Error(e.gate.place.Package+": the limit cannot be asked",
		"endpoint", e.gate.place.Endpoint(e.request), "error", e.Err)
}

func (e *Entry[R, O]) logMissing(limit *Limit[R, O], missing *missingError) {
	said := &limit.said.noKey
	if missing.what == "policy" {
		said = &limit.said.noPolicy
	}
	if said.Swap(true) {
		return
	}
	follows := "such requests are answered 503"
	if limit.allows() {
		follows = "such requests pass this limit"
	}
	e.gate.client.Logger().Error(fmt.Sprintf("%s: %s for a limit: %s", e.gate.place.Package, missing, follows),
		"endpoint", e.gate.place.Endpoint(e.request), "policy", limit.Policy)
}
