// Package rlhttp limits HTTP handlers: of net/http, of chi and of every router with the same middleware.
//
//	limit := rlhttp.Limit(client, rlhttp.Policy("search"))
//	mux.Handle("GET /search", limit(search))
//
//	router.With(rlhttp.Limit(client, rlhttp.Every(10, 5*time.Second))).Get("/export", export)
//
// A denied request is answered 429 with the headers of the IETF's draft and a problem+json body. Where the daemon does
// not answer, OnError decides: ratelimit.Allow lets the request through, ratelimit.Deny answers 503. A request without a
// key is answered 503, unless ratelimit.Allow is written at this limit. A mistake in the program or the configuration is
// answered 500 and logged: it never means "no limit".
package rlhttp

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/gate"
)

// A KeyFunc returns whose request this is. ErrNoLimit lets it pass; another error is answered 500. "" is no key: that is
// answered 503.
type KeyFunc = func(*http.Request) (string, error)

// ErrNoLimit, returned by a KeyFunc or a policy's function, lets the request pass this limit. Nothing else does, but Skip.
var ErrNoLimit = gate.ErrNoLimit

type (
	limit = gate.Limit[*http.Request, int]
	entry = gate.Entry[*http.Request, int]
)

// An Option of Limit. Those of one limit are about the limit that And has begun last, or the first one.
type Option func(*settings)

type settings struct {
	limits   []limit
	chosen   int // how often the last limit was given a policy
	form     Form
	respond  func(http.ResponseWriter, *http.Request, ratelimit.Decision)
	endpoint func(*http.Request) string
	written  bool // the endpoint's name is
}

func (s *settings) last() *limit { return &s.limits[len(s.limits)-1] }

// Policy names the policy of the daemon's configuration. A limit such as "10/5s" is what Rate makes of it.
func Policy(name string) Option {
	return func(s *settings) {
		if s.chosen++; s.chosen > 1 {
			wrong("a limit has one policy: %s, or the one before it; And adds a second limit", name)
		}
		s.last().Policy = name
	}
}

// PolicyOf chooses the policy by the request: a name, or settings as ratelimit.Every and ratelimit.Inline write them.
// ErrNoLimit lets the request pass this limit; "" is answered as a request without a key is; another error, or a text that is
// no policy, is answered 500. Verify cannot know what the function will answer. Of settings, the limit may move: its
// counter stays.
func PolicyOf(policy func(*http.Request) (string, error)) Option {
	return func(s *settings) { s.last().PolicyOf = policy }
}

// EveryOf is Every with a limit and a window that depend on the request.
func EveryOf(limit func(*http.Request) (n int64, window time.Duration)) Option {
	return PolicyOf(func(r *http.Request) (string, error) { return ratelimit.Every(limit(r)), nil })
}

// Name is what answers, header fields and logs call a limit that is written here, in place of inline-224b... It does not
// change what counts together.
func Name(name string) Option {
	if !ratelimit.IsPolicyName(name) {
		wrong("a name has letters, digits, '.', '_' and '-': not %q", name)
	}
	return func(s *settings) { s.last().Name = name }
}

// Every is a limit that is written here: n requests in each window, which begins with the first one. The daemon must
// allow it (inline: {allow: true}). It counts by endpoint and key.
func Every(n int64, window time.Duration) Option { return Policy(ratelimit.Every(n, window)) }

// Rate is Every as a text, such as "10/5s" or "5000/day". It panics if the text is no limit.
func Rate(text string) Option {
	policy, err := ratelimit.ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return Policy(policy)
}

// Inline is a limit that is written here, with the settings of ratelimitd.yaml(5). It counts by endpoint and key.
func Inline(settings map[string]any) Option { return Policy(ratelimit.Inline(settings)) }

// Key chooses whose requests are counted together; without it ByIP().
func Key(key KeyFunc) Option { return func(s *settings) { s.last().Key = key } }

// Cost is what a request costs; without it 1.
func Cost(units int64) Option {
	if units < 0 {
		wrong("a cost is at least 0, not %d", units)
	}
	return CostOf(func(*http.Request) int64 { return units })
}

// CostOf is for costs that depend on the request.
func CostOf(cost func(*http.Request) int64) Option { return func(s *settings) { s.last().Cost = cost } }

// Skip lets requests pass for which the function returns true, such as health checks. Everything else that comes to the
// limit is counted, whatever its method.
func Skip(skip func(*http.Request) bool) Option { return func(s *settings) { s.last().Skip = skip } }

// OnError decides what happens where the daemon does not answer; without it the client's WithOnError.
func OnError(onError ratelimit.OnError) Option {
	return func(s *settings) { s.last().OnError = onError }
}

// ChargeWhen charges only the requests for which the function returns true when their status is known, such as failed
// logins. A unit is reserved in the meantime.
func ChargeWhen(when func(r *http.Request, status int) bool) Option {
	return func(s *settings) { s.last().ChargeWhen = when }
}

// ChargeUnits charges as many units as the function returns when the request's status is known. The cost is reserved in the
// meantime. Units beyond it are charged as far as they are left, or all of them if the policy has debt.
func ChargeUnits(units func(r *http.Request, status int) int64) Option {
	return func(s *settings) { s.last().ChargeUnits = units }
}

// Slot is for policies with a concurrency limit: the request holds a slot until its handler returns.
func Slot() Option { return func(s *settings) { s.last().Slot = true } }

// PerEndpoint has a named policy count each endpoint by itself, as limits that are written here do.
func PerEndpoint() Option { return func(s *settings) { s.last().PerEndpoint = true } }

// Enabled(false) switches the limit off.
func Enabled(enabled bool) Option { return func(s *settings) { s.last().Off = !enabled } }

// And adds another limit, with options of its own. All of them are asked in one request to the daemon, and charged
// together or not at all.
func And(options ...Option) Option {
	return func(s *settings) {
		s.limits, s.chosen = append(s.limits, fresh()), 0
		for _, option := range options {
			option(s)
		}
	}
}

// Headers chooses the headers; without it IETF.
func Headers(mode HeaderMode) Option {
	if !slices.Contains([]HeaderMode{IETF, Legacy, Both, None}, mode) {
		wrong("headers are ietf, legacy, both or none: not %q", mode)
	}
	return func(s *settings) { s.form.Mode = mode }
}

// EpochReset makes X-RateLimit-Reset the time of day, as GitHub has it, not a number of seconds.
func EpochReset() Option { return func(s *settings) { s.form.Epoch = true } }

// Respond answers denied requests. The headers that report limits are set already, and Retry-After. What the function sets
// does not replace them.
func Respond(respond func(w http.ResponseWriter, r *http.Request, denied ratelimit.Decision)) Option {
	return func(s *settings) { s.respond = respond }
}

// EndpointName is the endpoint's name, by which limits that are written here count. Without it, it is the pattern of the
// router (http.Request.Pattern). It is needed where the router reports none: in front of a router, and in those that do not
// set it, such as gorilla/mux. Two endpoints of one name are answered 500, unless it is written for both.
func EndpointName(name string) Option {
	return func(s *settings) {
		if name == "" {
			wrong("the name of an endpoint is empty")
		}
		s.endpoint, s.written = func(*http.Request) string { return name }, true
	}
}

// Endpoint is for routers that do not set http.Request.Pattern: the function returns theirs, or "" if there is none. It must
// not return what the client wrote, such as the path.
func Endpoint(endpoint func(*http.Request) string) Option {
	return func(s *settings) { s.endpoint, s.written = endpoint, false }
}

// IsPreflight is for Skip, where the layer that answers the preflights of CORS is behind the limit: OPTIONS with Origin and
// Access-Control-Request-Method. Everyone can send these, so it is safe only where no handler answers OPTIONS.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// wrong ends the program at its start: a limit that is wrong must not mean "no limit".
func wrong(format string, values ...any) {
	panic(&ratelimit.RefusedError{Code: ratelimit.BadArgument, Message: fmt.Sprintf(format, values...)})
}

func fresh() limit { return limit{Key: ByIP()} }

func pattern(r *http.Request) string { return r.Pattern }

// isSame: a copy of a request, as routers and forwarding handlers make them, is the same request at another place.
func isSame(outer, inner *http.Request) bool {
	return outer.RequestURI != "" && outer.RequestURI == inner.RequestURI && outer.RemoteAddr == inner.RemoteAddr
}

// Limit returns middleware. It counts preflights of CORS as all requests: put it inside the CORS middleware, which answers
// them before, or use Skip(IsPreflight).
func Limit(client *ratelimit.Client, options ...Option) func(http.Handler) http.Handler {
	g := NewGate(client, options...)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pass, ok := g.Enter(w, r)
			if !ok {
				return
			}

			status := http.StatusInternalServerError // of a panic
			defer func() { pass.Leave(status) }()
			r = pass.Into(r)
			if !pass.Watches() && !pass.Keeps() {
				next.ServeHTTP(w, r)
				return
			}
			watched := &watcher{ResponseWriter: w, kept: pass.kept()}
			next.ServeHTTP(watched, r)
			watched.keep()
			if status = watched.status; status == 0 {
				status = http.StatusOK
			}
		})
	}
}

// A Gate is what Limit is made of, for the middleware of other frameworks.
type Gate struct {
	gate *gate.Gate[*http.Request, int]
	settings
}

// NewGate takes the options of Limit. It panics if they contradict each other.
func NewGate(client *ratelimit.Client, options ...Option) *Gate {
	chosen := settings{limits: []limit{fresh()}, endpoint: pattern}
	for _, option := range options {
		option(&chosen)
	}
	g := &Gate{settings: chosen}
	place := gate.Place[*http.Request]{Package: "rlhttp", Endpoint: chosen.endpoint, IsWritten: chosen.written, Same: isSame, Owner: g}
	g.gate = gate.New(client, place, chosen.limits...)
	return g
}

// A Pass is a request that may go on.
type Pass struct{ entry *entry }

func (p Pass) kept() kept { return reportOf(p.entry).kept }

// Keeps reports whether Keep has something to do.
func (p Pass) Keeps() bool { return len(p.kept()) > 0 }

// Keep puts the X-RateLimit fields in the place of those that the application has set. Call it when the answer's header is
// complete.
func (p Pass) Keep(header http.Header) { p.kept().into(header) }

// Writer is w, with a Keep before the header is written.
func (p Pass) Writer(w http.ResponseWriter) http.ResponseWriter {
	return &watcher{ResponseWriter: w, kept: p.kept()}
}

// Into is the request for the handler and for later limits: DecisionOf finds the decision in its context.
func (p Pass) Into(r *http.Request) *http.Request { return r.WithContext(p.entry.Into(r.Context())) }

// DecisionOf returns, within a handler, the decision about its request. Of several limits it is the one with least left.
// False: no decision was made.
func DecisionOf(ctx context.Context) (ratelimit.Decision, bool) {
	return gate.DecisionOf[*http.Request, int](ctx)
}

// Watches reports whether Leave needs the status.
func (p Pass) Watches() bool { return p.entry.Watches() }

// Leave must be called when the request's handler has ended, with the status of its answer.
func (p Pass) Leave(status int) { p.entry.Leave(status) }

// Enter decides a request and sets headers. False: it has been answered.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (Pass, bool) {
	entered := g.gate.Enter(r.Context(), r)
	switch entered.Verdict {
	case gate.Pass:
		report(w.Header(), entered)
		return Pass{entered}, true
	case gate.Denied:
		isFailure := entered.Decision.Source == "deny"
		if !isFailure {
			report(w.Header(), entered)
		}
		if g.respond != nil {
			g.writeOwn(w, r, entered)
		} else if isFailure {
			g.form.WriteUnavailable(w, r)
		} else {
			g.form.writeDenied(w, r, entered.Decision, entered.Slot)
		}
	case gate.Closed:
		report(w.Header(), entered)
		g.form.WriteUnavailable(w, r)
	case gate.Wrong:
		entered.LogWrong()
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	}
	return Pass{}, false
}

// A reported is what the limits of one request have in its answer's header. It is kept with the first place.
type reported struct {
	policies, states string
	kept             kept
}

func reportOf(entered *entry) *reported {
	for entered.Outer() != nil {
		entered = entered.Outer()
	}
	if entered.Note == nil {
		entered.Note = &reported{kept: kept{}}
	}
	return entered.Note.(*reported)
}

// report sets the headers about all that was decided, also at earlier places of the request: each policy and key once.
func report(header http.Header, entered *entry) {
	var places []*entry
	for place := entered; place != nil; place = place.Outer() {
		places = append(places, place)
	}
	slices.Reverse(places)

	var shown []gate.Decided
	isLegacy, epoch := false, Form{}
	for _, place := range places {
		form := place.Owner().(*Gate).form
		decided := place.Decided()
		if len(decided) > 0 && form.hasLegacy() {
			isLegacy, epoch = true, form
		}
		if !form.hasIETF() {
			continue
		}
		for _, one := range decided {
			isIt := func(other gate.Decided) bool { return other.Policy == one.Policy && other.Key == one.Key }
			if i := slices.IndexFunc(shown, isIt); i >= 0 {
				shown[i] = one
			} else {
				shown = append(shown, one)
			}
		}
	}

	seen := reportOf(entered)
	seen.show(header, shown)
	if whole, ok := entered.Tightest(); ok && isLegacy {
		epoch.addLegacy(header, whole)
		for _, name := range legacyFields {
			if value := header.Get(name); value != "" {
				seen.kept[name] = value
			}
		}
	}
}

// show replaces what was reported before; others may have added to the fields.
func (s *reported) show(header http.Header, decided []gate.Decided) {
	decisions := make([]ratelimit.Decision, len(decided))
	for i, one := range decided {
		decisions[i] = one.Decision
	}
	policies, states := items(decisions)
	for _, field := range []struct {
		name   string
		before *string
		now    string
	}{{"RateLimit-Policy", &s.policies, policies}, {"RateLimit", &s.states, states}} {
		there := strings.Join(header.Values(field.name), ", ")
		switch {
		case field.now == "":
		case *field.before != "" && strings.Contains(there, *field.before):
			header.Set(field.name, strings.Replace(there, *field.before, field.now, 1))
		case there != "":
			header.Set(field.name, there+", "+field.now)
		default:
			header.Set(field.name, field.now)
		}
		*field.before = field.now
	}
}

// writeOwn answers by the program's function.
func (g *Gate) writeOwn(w http.ResponseWriter, r *http.Request, denied *entry) {
	retryAfter := int64(1)
	known := true
	if denied.Decision.Source != "deny" {
		retryAfter, known = afterSeconds(denied.Decision, denied.Slot)
	}
	if known {
		w.Header().Set("Retry-After", strconv.FormatInt(retryAfter, 10))
	}
	own := &watcher{ResponseWriter: w, kept: keptOf(w.Header(), append(legacyFields, "Retry-After")...)}
	g.respond(own, r, denied.Decision)
	own.keep()
}

// kept are the fields of a limit that replace those of the application.
type kept map[string]string

var legacyFields = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

func keptOf(header http.Header, names ...string) kept {
	found := kept{}
	for _, name := range names {
		if value := header.Get(name); value != "" {
			found[name] = value
		}
	}
	return found
}

func (k kept) into(header http.Header) {
	for name, value := range k {
		header.Set(name, value)
	}
}

// A watcher remembers the status, and keeps fields. Everything else goes to the writer below, also through http.ResponseController.
type watcher struct {
	http.ResponseWriter
	status int
	kept   kept
}

// keep is called before the header is written.
func (w *watcher) keep() {
	if w.status == 0 {
		w.kept.into(w.Header())
	}
}

func (w *watcher) WriteHeader(status int) {
	w.keep()
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watcher) Write(data []byte) (int, error) {
	w.keep()
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *watcher) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for handlers that ask for an http.Flusher instead of an http.ResponseController.
func (w *watcher) Flush() {
	w.keep()
	if w.status == 0 {
		w.status = http.StatusOK
	}
	http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for handlers that ask for an http.Hijacker.
func (w *watcher) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// ---- Keys -----------------------------------------------------------------------------------------------------

// ByHeader is the value of a header that a layer which you trust sets. A request without the header, or with an empty one,
// has no key.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		values := r.Header.Values(name)
		if len(values) == 0 {
			return "", nil
		}
		return values[len(values)-1], nil
	}
}

// ByForm is a field of the posted form, such as the name at a login; `-` if it is missing or empty. It reads the body; set
// http.MaxBytesReader before.
func ByForm(field string) KeyFunc {
	return func(r *http.Request) (string, error) { return cmp.Or(r.PostFormValue(field), "-"), nil }
}

// ByUser is the user of the request, or the address of the client where the function reports that there is none. The keys
// of both cannot meet. A user whose name is empty is no key.
func ByUser(user func(*http.Request) (name string, known bool), options ...IPOption) KeyFunc {
	ip := ByIP(options...)
	return func(r *http.Request) (string, error) {
		if name, known := user(r); known {
			return ratelimit.JoinKey("u", name), nil
		}
		found, err := ip(r)
		if err != nil {
			return "", err
		}
		return ratelimit.JoinKey("i", found), nil
	}
}

// Hashed is for keys that are secrets, such as tokens.
func Hashed(key KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		secret, err := key(r)
		return ratelimit.HashedKey(secret), err
	}
}

// Join makes one key of several. There is none if one of them is empty.
func Join(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			var err error
			if parts[i], err = key(r); err != nil {
				return "", err
			}
		}
		return ratelimit.JoinKey(parts...), nil
	}
}
