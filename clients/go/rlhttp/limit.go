// Package rlhttp limits HTTP handlers: of net/http, of chi and of every router with the same middleware.
//
//	limit := rlhttp.Limit(client, rlhttp.Policy("search"))
//	mux.Handle("GET /search", limit(search))
//
//	router.With(rlhttp.Limit(client, rlhttp.Every(10, 5*time.Second))).Get("/export", export)
//
// A denied request is answered 429 with the headers of the IETF's draft and a problem+json body. Where the daemon does
// not answer, OnError decides: ratelimit.Allow lets the request through, ratelimit.Deny answers 503. A mistake in the
// program or the configuration is answered 500 and logged: it never means "no limit".
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
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/gate"
)

// A KeyFunc returns whose request this is. ErrNoLimit lets it pass; another error, or an empty key, is answered 500.
type KeyFunc = func(*http.Request) (string, error)

// ErrNoLimit, returned by a KeyFunc, lets the request pass this limit.
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
// ErrNoLimit lets the request pass this limit; another error, or a text that is no policy, is answered 500. Verify cannot
// know what the function will answer.
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

// Skip lets requests pass for which the function returns true, such as health checks.
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
// router (http.Request.Pattern), or `*` outside of one.
func EndpointName(name string) Option {
	return Endpoint(func(*http.Request) string { return name })
}

// Endpoint is for routers that do not set http.Request.Pattern.
func Endpoint(endpoint func(*http.Request) string) Option {
	return func(s *settings) { s.endpoint = endpoint }
}

// wrong ends the program at its start: a limit that is wrong must not mean "no limit".
func wrong(format string, values ...any) {
	panic(&ratelimit.RefusedError{Code: ratelimit.BadArgument, Message: fmt.Sprintf(format, values...)})
}

func fresh() limit { return limit{Key: ByIP()} }

func pattern(r *http.Request) string {
	if r.Pattern == "" {
		return "*"
	}
	return r.Pattern
}

// Limit returns middleware. Preflight requests of CORS are not limited; put the limiter inside the CORS middleware.
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
			watched := &watcher{ResponseWriter: w, kept: pass.kept}
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
	client *ratelimit.Client
	gate   *gate.Gate[*http.Request, int]
	settings
}

// NewGate takes the options of Limit. It panics if they contradict each other.
func NewGate(client *ratelimit.Client, options ...Option) *Gate {
	chosen := settings{limits: []limit{fresh()}, endpoint: pattern}
	for _, option := range options {
		option(&chosen)
	}
	return &Gate{client: client, gate: gate.New(client, chosen.endpoint, chosen.limits...), settings: chosen}
}

// A Pass is a request that may go on.
type Pass struct {
	entry *entry
	kept  kept
}

// Keeps reports whether Keep has something to do.
func (p Pass) Keeps() bool { return len(p.kept) > 0 }

// Keep puts the X-RateLimit fields in the place of those that the application has set. Call it when the answer's header is
// complete.
func (p Pass) Keep(header http.Header) { p.kept.into(header) }

// Writer is w, with a Keep before the header is written.
func (p Pass) Writer(w http.ResponseWriter) http.ResponseWriter {
	return &watcher{ResponseWriter: w, kept: p.kept}
}

type decisionKey struct{}

// Into is the request for the handler: DecisionOf finds the decision in its context.
func (p Pass) Into(r *http.Request) *http.Request {
	if p.entry == nil {
		return r
	}
	decision, ok := p.entry.Tightest()
	if !ok {
		return r
	}
	if outer, ok := DecisionOf(r.Context()); ok && outer.Of != "" && outer.Remaining <= decision.Remaining {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), decisionKey{}, decision))
}

// DecisionOf returns, within a handler, the decision about its request. Of several limits it is the one with least left.
// False: no decision was made.
func DecisionOf(ctx context.Context) (ratelimit.Decision, bool) {
	decision, ok := ctx.Value(decisionKey{}).(ratelimit.Decision)
	return decision, ok
}

// Watches reports whether Leave needs the status.
func (p Pass) Watches() bool { return p.entry != nil && p.entry.Watches() }

// Leave must be called when the request's handler has ended, with the status of its answer.
func (p Pass) Leave(status int) {
	if p.entry != nil {
		p.entry.Leave(status)
	}
}

// Enter decides a request and sets headers. False: it has been answered.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (Pass, bool) {
	if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
		return Pass{}, true
	}

	entered := g.gate.Enter(r.Context(), r)
	if entered.Verdict == gate.Pass || entered.Verdict == gate.Denied {
		g.report(w.Header(), entered)
	}
	switch entered.Verdict {
	case gate.Pass:
		pass := Pass{entry: entered}
		if len(entered.Decided) > 0 && (g.form.Mode == Legacy || g.form.Mode == Both) {
			pass.kept = keptOf(w.Header(), legacyFields...)
		}
		return pass, true
	case gate.Denied:
		if g.respond != nil {
			g.writeOwn(w, r, entered)
		} else if entered.Decision.Source == "deny" {
			g.form.WriteUnavailable(w, r)
		} else {
			g.form.writeDenied(w, r, entered.Decision, entered.Slot)
		}
	case gate.Closed:
		g.form.WriteUnavailable(w, r)
	case gate.Wrong:
		g.client.Logger().Error("rlhttp: the limit cannot be asked", "endpoint", g.endpoint(r), "error", entered.Err)
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
	}
	return Pass{}, false
}

// report sets the headers about all that was decided. A denial of a slot or a reservation ends the request before the
// other limits are asked, so it speaks for itself.
func (g *Gate) report(header http.Header, entered *entry) {
	if len(entered.Decided) == 0 || (entered.Verdict == gate.Denied && entered.Decision.Source == "deny") {
		return
	}
	whole, _ := entered.Tightest()
	g.form.addHeaders(header, whole, entered.Decided)
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

// ByHeader is the value of a header that a layer which you trust sets. A request without the header is not limited by
// it; an empty one is answered 500.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		values := r.Header.Values(name)
		if len(values) == 0 {
			return "", ErrNoLimit
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
// of both cannot meet.
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

// Join makes one key of several. It is empty if one of them is.
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
