package rlhttp_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"go.uber.org/goleak"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const configuration = `
policies:
  web: {algorithm: token_bucket, limit: 10, window: 1m, burst: 20}
  search:
    limits:
    - {name: second, algorithm: fixed_window, limit: 2, window: 1s}
    - {name: day, algorithm: fixed_window, limit: 100, window: 1d}
  tenant: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  login: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  slow: {algorithm: concurrency, limit: 1}
  free: {unlimited: true}
inline: {allow: true}
`

func ok(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }

// ask sends a request through the middleware to a handler.
func ask(limit func(http.Handler) http.Handler, handler http.HandlerFunc,
	change ...func(*http.Request)) *httptest.ResponseRecorder {
	request := httptest.NewRequest("GET", "/", nil)
	for _, one := range change {
		one(request)
	}
	answer := httptest.NewRecorder()
	limit(handler).ServeHTTP(answer, request)
	return answer
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// parsed reads a field with a library of its own for Structured Fields.
func parsed(t *testing.T, answer *httptest.ResponseRecorder, name string) httpsfv.List {
	t.Helper()
	list, err := httpsfv.UnmarshalList(answer.Header().Values(name))
	if err != nil {
		t.Fatalf("%s: %v: %q", name, err, answer.Header().Values(name))
	}
	return list
}

func item(t *testing.T, member httpsfv.Member, parameters ...any) {
	t.Helper()
	got := member.(httpsfv.Item)
	if got.Value != parameters[0] {
		t.Errorf("the name is %v, not %v", got.Value, parameters[0])
	}
	want := []string{}
	for i := 1; i < len(parameters); i += 2 {
		name := parameters[i].(string)
		want = append(want, name)
		if value, _ := got.Params.Get(name); value != parameters[i+1] {
			t.Errorf("%s is %v, not %v", name, value, parameters[i+1])
		}
	}
	if names := got.Params.Names(); !reflect.DeepEqual(names, want) {
		t.Errorf("parameters %v, not %v", names, want)
	}
}

func TestHeadersAreStructuredFields(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	answer := ask(rlhttp.Limit(client, rlhttp.Policy("web")), ok)
	item(t, parsed(t, answer, "RateLimit-Policy")[0], "web",
		"q", int64(10), "w", int64(60), "ratelimitd-burst", int64(20))
	item(t, parsed(t, answer, "RateLimit")[0], "web", "r", int64(19), "t", int64(6))

	search := rlhttp.Limit(client, rlhttp.Policy("search"))
	ask(search, ok)
	ask(search, ok)
	answer = ask(search, ok)
	if answer.Code != http.StatusTooManyRequests || answer.Header().Get("Retry-After") != "1" {
		t.Fatal(answer.Code, answer.Header())
	}
	item(t, parsed(t, answer, "RateLimit-Policy")[0], "search/second", "q", int64(2), "w", int64(1))
	item(t, parsed(t, answer, "RateLimit")[0], "search/second", "r", int64(0), "t", int64(1))

	answer = ask(rlhttp.Limit(client, rlhttp.Policy("slow"), rlhttp.Slot()), ok)
	item(t, parsed(t, answer, "RateLimit-Policy")[0], "slow", "q", int64(1), "qu", "concurrent-requests")
	item(t, parsed(t, answer, "RateLimit")[0], "slow", "r", int64(0))
}

func TestHeadersJoinThoseOfAnotherLimiter(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	outer, inner := rlhttp.Limit(client, rlhttp.Policy("web")), rlhttp.Limit(client, rlhttp.Policy("tenant"))

	answer := ask(func(next http.Handler) http.Handler { return outer(inner(next)) }, ok)
	list := parsed(t, answer, "RateLimit")
	if len(list) != 2 || len(answer.Header().Values("RateLimit")) != 1 {
		t.Fatal(answer.Header())
	}
	item(t, list[1], "tenant", "r", int64(1), "t", int64(60))
}

func TestNothingIsReportedWithoutACount(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	for _, mode := range []rlhttp.HeaderMode{rlhttp.IETF, rlhttp.Legacy, rlhttp.Both} {
		answer := ask(rlhttp.Limit(client, rlhttp.Policy("free"), rlhttp.Headers(mode)), ok)
		for name := range answer.Header() {
			if strings.Contains(strings.ToLower(name), "ratelimit") {
				t.Error(mode, name)
			}
		}
	}
}

func TestSeveralLimitsAreChargedTogetherOrNotAtAll(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()
	both := rlhttp.Limit(client, rlhttp.Policy("web"),
		rlhttp.And(rlhttp.Policy("tenant"), rlhttp.Key(rlhttp.ByHeader("X-Tenant"))))

	for range 2 {
		answer := ask(both, ok, header("X-Tenant", "acme"))
		if answer.Code != 200 || len(parsed(t, answer, "RateLimit")) != 2 {
			t.Fatal(answer)
		}
	}
	answer := ask(both, ok, header("X-Tenant", "acme"))
	if answer.Code != 429 || !strings.Contains(answer.Body.String(), `["tenant"]`) {
		t.Fatal(answer.Body)
	}
	if d, err := client.Peek(context.Background(), "web", "192.0.2.1"); err != nil || d.Remaining != 18 {
		t.Fatal("the denied request was charged: ", d, err)
	}
}

func TestEqualLimitsOfOneRequestAreAskedOnce(t *testing.T) {
	fake := ratelimittest.NewFake()

	again, other := rlhttp.And(rlhttp.Policy("web")), rlhttp.And(rlhttp.Policy("tenant"))
	ask(rlhttp.Limit(fake.Client(), rlhttp.Policy("web"), again, other), ok)
	want := []ratelimittest.Call{{Method: "check_all", Policy: "web", Key: "192.0.2.1", Units: 1},
		{Method: "check_all", Policy: "tenant", Key: "192.0.2.1", Units: 1}}
	if calls := fake.Calls(); !reflect.DeepEqual(calls, want) {
		t.Fatal(calls)
	}
}

func TestLimitsWrittenAtAnEndpointCountByIt(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()
	mux := http.NewServeMux()
	mux.Handle("GET /a/{id}", rlhttp.Limit(client, rlhttp.Every(1, time.Minute))(http.HandlerFunc(ok)))
	mux.Handle("GET /b", rlhttp.Limit(client, rlhttp.Rate("1/m"))(http.HandlerFunc(ok)))

	for _, step := range []struct {
		path string
		want int
	}{{"/a/1", 200}, {"/a/2", 429}, {"/b", 200}, {"/b", 429}} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest("GET", step.path, nil))
		if answer.Code != step.want {
			t.Error(step, answer.Code)
		}
	}
}

func TestOnlyWhatChargeWhenSaysIsCharged(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	failed := func(_ *http.Request, status int) bool { return status >= 400 }
	limit := rlhttp.Limit(client, rlhttp.Policy("login"), rlhttp.ChargeWhen(failed))
	left := func() int64 {
		d, err := client.Peek(context.Background(), "login", "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}

	ask(limit, ok)
	ask(limit, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	if left() != 2 {
		t.Fatal("a success was charged")
	}
	ask(limit, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) })
	if left() != 1 {
		t.Fatal("a failure was not charged")
	}
	func() {
		defer func() { recover() }()
		ask(limit, func(http.ResponseWriter, *http.Request) { panic("as the test wants it") })
	}()
	if left() != 0 {
		t.Fatal("a panic is a failure")
	}
	if answer := ask(limit, ok); answer.Code != 429 {
		t.Fatal(answer.Code)
	}
}

func TestASlotIsHeldUntilTheHandlerReturns(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	limit := rlhttp.Limit(client, rlhttp.Policy("slow"), rlhttp.Slot())

	answer := ask(limit, func(w http.ResponseWriter, r *http.Request) {
		within := ask(limit, ok)
		if within.Code != 429 || within.Header().Get("Retry-After") != "" {
			t.Error(within.Code, within.Header())
		}
	})
	if answer.Code != 200 {
		t.Fatal(answer.Code)
	}
	if answer := ask(limit, ok); answer.Code != 200 {
		t.Fatal("the slot was not released")
	}
}

func TestWhatWasTakenIsGivenBackWhereALaterLimitDenies(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Deny("web", 3000)
	limit := rlhttp.Limit(fake.Client(), rlhttp.Policy("web"), rlhttp.And(rlhttp.Policy("slow"), rlhttp.Slot()),
		rlhttp.And(rlhttp.Policy("login"), rlhttp.ChargeWhen(func(*http.Request, int) bool { return true })))

	if answer := ask(limit, ok); answer.Code != 429 || answer.Header().Get("Retry-After") != "3" {
		t.Fatal(answer)
	}
	methods := ""
	for _, call := range fake.Calls() {
		methods += call.Method + " "
	}
	if methods != "acquire reserve check cancel release " || fake.HeldSlots() != 0 {
		t.Fatal(methods)
	}
}

func TestAPanicOfTheProgramGivesBackWhatEarlierLimitsHold(t *testing.T) {
	panics := func(*http.Request, int) bool { panic("as the test wants it") }
	never := func(*http.Request, int) bool { return false }
	onError := func(context.Context, *ratelimit.UnavailableError) bool { panic("as the test wants it") }
	failures := func(policy string, when func(*http.Request, int) bool) rlhttp.Option {
		return rlhttp.And(rlhttp.Policy(policy), rlhttp.ChargeWhen(when))
	}

	for name, later := range map[string][]rlhttp.Option{
		"ChargeWhen": {failures("login", panics), failures("other", never)},
		"OnError":    {failures("last", never), rlhttp.And(rlhttp.Policy("web"), rlhttp.OnError(onError))},
	} {
		fake := ratelimittest.NewFake()
		client := fake.Client(ratelimit.WithOnDecision(func(event ratelimit.Event) {
			if event.Policy == "last" {
				fake.Unavailable(ratelimit.KindUnreachable)
			}
		}))
		limit := rlhttp.Limit(client, append([]rlhttp.Option{rlhttp.Policy("slow"), rlhttp.Slot()}, later...)...)

		panicked := false
		func() {
			defer func() { panicked = recover() != nil }()
			ask(limit, ok)
		}()
		held := 0
		for _, call := range fake.Calls() {
			switch call.Method {
			case "acquire", "reserve":
				held++
			case "release", "settle", "cancel":
				held--
			}
		}
		if !panicked || held != 0 {
			t.Errorf("%s: panicked: %v, not given back: %d", name, panicked, held)
		}
	}
}

func TestOnErrorDecidesWhereTheDaemonDoesNotAnswer(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Unavailable(ratelimit.KindUnreachable)
	client := fake.Client()

	if answer := ask(rlhttp.Limit(client, rlhttp.Policy("web")), ok); answer.Code != 200 || answer.Header().Get("RateLimit") != "" {
		t.Fatal(answer)
	}
	answer := ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.OnError(ratelimit.Deny)), ok)
	if answer.Code != 503 || answer.Header().Get("Retry-After") != "1" ||
		!strings.Contains(answer.Body.String(), "temporary-reduced-capacity") {
		t.Fatal(answer)
	}
	if answer := ask(rlhttp.Limit(fake.Client(ratelimit.WithOnError(ratelimit.Deny)), rlhttp.Policy("web")), ok); answer.Code != 503 {
		t.Fatal(answer)
	}
	closed := rlhttp.And(rlhttp.Policy("b"), rlhttp.OnError(ratelimit.Deny))
	strictest := rlhttp.Limit(client, rlhttp.Policy("a"), closed)
	if answer := ask(strictest, ok); answer.Code != 503 {
		t.Fatal(answer)
	}
	var seen *ratelimit.UnavailableError
	chosen := func(_ context.Context, err *ratelimit.UnavailableError) bool { seen = err; return true }
	answer = ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.OnError(chosen)), ok)
	if answer.Code != 200 || seen.Kind != ratelimit.KindUnreachable {
		t.Fatal(answer, seen)
	}
}

func TestTheLogSaysOnceInTenSecondsWhatFollowsIfTheDaemonDoesNotAnswer(t *testing.T) {
	for follows, onError := range map[string]ratelimit.OnError{"requests pass": ratelimit.Allow, "requests are answered 503": ratelimit.Deny} {
		fake := ratelimittest.NewFake()
		fake.Unavailable(ratelimit.KindUnreachable)
		var log strings.Builder
		client := fake.Client(ratelimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), ratelimit.WithOnError(onError))
		for range 3 {
			ask(rlhttp.Limit(client, rlhttp.Policy("web")), ok)
		}
		if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), follows) {
			t.Error(follows, log.String())
		}
	}
}

func TestAMistakeIsNeverNoLimit(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Fail(&ratelimit.RefusedError{Code: "UNKNOWN_POLICY", Message: "there is no policy wbe"})
	if answer := ask(rlhttp.Limit(fake.Client(), rlhttp.Policy("web")), ok); answer.Code != 500 {
		t.Fatal(answer.Code)
	}

	client := ratelimittest.NewFake().Client()
	broken := func(*http.Request) (string, error) { return "k", errors.New("no") }
	if answer := ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Key(broken)), ok); answer.Code != 500 {
		t.Error(answer.Code)
	}
	unix := func(r *http.Request) { r.RemoteAddr = "@" }
	if answer := ask(rlhttp.Limit(client, rlhttp.Policy("web")), ok, unix); answer.Code != 500 {
		t.Error("a peer without an address: ", answer.Code)
	}
}

func TestARequestWithoutAKeyIsRefused(t *testing.T) {
	always := func(context.Context, *ratelimit.UnavailableError) bool { return true }
	for what, key := range map[string]rlhttp.KeyFunc{
		"empty":        func(*http.Request) (string, error) { return "", nil },
		"no header":    rlhttp.ByHeader("X-Tenant"),
		"empty header": rlhttp.ByHeader("X-Empty"),
		"empty part":   rlhttp.Join(rlhttp.ByIP(), rlhttp.ByHeader("X-Empty")),
		"empty secret": rlhttp.Hashed(rlhttp.ByHeader("X-Empty")),
		"empty user":   rlhttp.ByUser(func(*http.Request) (string, bool) { return "", true }),
	} {
		fake := ratelimittest.NewFake()
		var log strings.Builder
		client := fake.Client(ratelimit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), ratelimit.WithOnError(ratelimit.Allow))
		name := rlhttp.EndpointName("GET /" + what)
		for i, row := range []struct {
			options []rlhttp.Option
			want    int
		}{
			{nil, 503}, {[]rlhttp.Option{rlhttp.OnError(ratelimit.Deny)}, 503}, {[]rlhttp.Option{rlhttp.OnError(always)}, 503},
			{[]rlhttp.Option{rlhttp.OnError(ratelimit.Allow)}, 200},
		} {
			log.Reset()
			limit := rlhttp.Limit(client, append([]rlhttp.Option{rlhttp.Policy("web"), rlhttp.Key(key), name}, row.options...)...)
			for range 3 {
				if answer := ask(limit, ok, header("X-Empty", "")); answer.Code != row.want {
					t.Error(what, i, answer.Code)
				}
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "no key") || !strings.Contains(log.String(), what) {
				t.Error(what, i, log.String())
			}
		}
		if len(fake.Calls()) != 0 {
			t.Error(what, fake.Calls())
		}
	}
}

func TestAPreflightIsCounted(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Deny("web", -1)
	preflight := func(r *http.Request) {
		r.Method = "OPTIONS"
		r.Header.Set("Access-Control-Request-Method", "POST")
	}
	whole := func(r *http.Request) { preflight(r); r.Header.Set("Origin", "https://example.org") }
	skips := rlhttp.Limit(fake.Client(), rlhttp.Policy("web"), rlhttp.Skip(rlhttp.IsPreflight))
	for i, answer := range []*httptest.ResponseRecorder{
		ask(rlhttp.Limit(fake.Client(), rlhttp.Policy("web")), ok, whole), ask(skips, ok, preflight), ask(skips, ok, whole),
	} {
		if want := []int{429, 429, 200}[i]; answer.Code != want {
			t.Error(i, answer.Code)
		}
	}
}

func nested(limits ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		for i := len(limits) - 1; i >= 0; i-- {
			next = limits[i](next)
		}
		return next
	}
}

func left(t *testing.T, client *ratelimit.Client, policy string) int64 {
	t.Helper()
	d, err := client.Peek(context.Background(), policy, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestAPolicyAndKeyAreChargedOnceARequestAtTheHighestCost(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	limit := func(options ...rlhttp.Option) func(http.Handler) http.Handler {
		return rlhttp.Limit(client, append([]rlhttp.Option{rlhttp.Policy("web")}, options...)...)
	}
	always := rlhttp.ChargeWhen(func(*http.Request, int) bool { return true })
	never := rlhttp.ChargeWhen(func(*http.Request, int) bool { return false })

	for i, row := range []struct {
		limits  []func(http.Handler) http.Handler
		charged int64
	}{
		{[]func(http.Handler) http.Handler{limit(), limit()}, 1},
		{[]func(http.Handler) http.Handler{limit(), limit(rlhttp.Cost(3)), limit(rlhttp.Cost(2))}, 3},
		{[]func(http.Handler) http.Handler{limit(always), limit(always)}, 1},
		{[]func(http.Handler) http.Handler{limit(never), limit(always)}, 1},
		{[]func(http.Handler) http.Handler{limit(always), limit()}, 1},
		{[]func(http.Handler) http.Handler{limit(), limit(never)}, 1},
		{[]func(http.Handler) http.Handler{limit(never), limit(never)}, 0},
		{[]func(http.Handler) http.Handler{limit(rlhttp.And(rlhttp.Policy("web"), rlhttp.Cost(2)))}, 2},
	} {
		before := left(t, client, "web")
		answer := ask(nested(row.limits...), ok)
		if answer.Code != 200 || before-left(t, client, "web") != row.charged || len(parsed(t, answer, "RateLimit")) != 1 {
			t.Error(i, answer.Code, before-left(t, client, "web"), answer.Header())
		}
	}
}

func TestALaterDenialGivesBackWhatEarlierLimitsTook(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	inner := rlhttp.Limit(client, rlhttp.Policy("login"))
	always := rlhttp.ChargeWhen(func(*http.Request, int) bool { return true })
	keyless := rlhttp.Limit(client, rlhttp.Policy("login"), rlhttp.Key(rlhttp.ByHeader("X-Tenant")))
	ask(inner, ok)
	ask(inner, ok)

	for i, row := range []struct {
		limits []func(http.Handler) http.Handler
		want   int
	}{
		{[]func(http.Handler) http.Handler{rlhttp.Limit(client, rlhttp.Policy("web")), inner}, 429},
		{[]func(http.Handler) http.Handler{rlhttp.Limit(client, rlhttp.Policy("web"), always), inner}, 429},
		{[]func(http.Handler) http.Handler{rlhttp.Limit(client, rlhttp.Policy("web")), keyless}, 503},
		{[]func(http.Handler) http.Handler{rlhttp.Limit(client, rlhttp.Policy("slow"), rlhttp.Slot()),
			rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Cost(3)), inner}, 429},
	} {
		answer := ask(nested(row.limits...), ok)
		if answer.Code != row.want || left(t, client, "web") != 20 || left(t, client, "slow") != 1 {
			t.Error(i, answer.Code, left(t, client, "web"), answer.Header())
		}
		if states := parsed(t, answer, "RateLimit"); i == 0 && (len(states) != 2 || !strings.Contains(answer.Header().Get("RateLimit"), `"web";r=20`)) {
			t.Error(answer.Header())
		}
	}
}

func TestEndpointsOfOneNameAreRefused(t *testing.T) {
	fake := ratelimittest.NewFake()
	client := fake.Client(ratelimit.WithService(""))
	mux := http.NewServeMux()
	for _, mount := range []string{"/a", "/b"} { // the inner pattern has no mount
		inner := http.NewServeMux()
		inner.Handle("GET /x", rlhttp.Limit(client, rlhttp.Every(1, time.Minute))(http.HandlerFunc(ok)))
		mux.Handle(mount+"/", http.StripPrefix(mount, inner))
	}
	foreign := rlhttp.Limit(client, rlhttp.Every(1, time.Minute))
	named := func() func(http.Handler) http.Handler {
		return rlhttp.Limit(client, rlhttp.Every(1, time.Minute), rlhttp.EndpointName("shared"))
	}
	visit := func(handler http.Handler, path string) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		return answer.Code
	}

	if first, second := visit(mux, "/a/x"), visit(mux, "/b/x"); first != 200 || second != 500 {
		t.Error("two mounts: ", first, second)
	}
	if code := visit(foreign(http.HandlerFunc(ok)), "/a"); code != 500 {
		t.Error("a router without patterns: ", code)
	}
	for range 2 {
		if code := visit(named()(http.HandlerFunc(ok)), "/a"); code != 200 {
			t.Error("the same written name: ", code)
		}
	}
	outer := rlhttp.Limit(client, rlhttp.Every(9, time.Minute))
	both := http.NewServeMux()
	both.Handle("GET /both", outer(rlhttp.Limit(client, rlhttp.Every(1, time.Second))(http.HandlerFunc(ok))))
	for range 2 {
		if code := visit(both, "/both"); code != 200 {
			t.Error("two limits of one endpoint: ", code)
		}
	}
}

func TestALimitThatMovesHasTheEndpointsNameAsItsID(t *testing.T) {
	fake := ratelimittest.NewFake()
	number := int64(0)
	moves := func(*http.Request) (int64, time.Duration) { number++; return number, time.Minute }
	limit := rlhttp.Limit(fake.Client(ratelimit.WithService("")), rlhttp.EveryOf(moves), rlhttp.EndpointName("GET /x"),
		rlhttp.And(rlhttp.EveryOf(moves), rlhttp.Key(func(*http.Request) (string, error) { return "all", nil })), rlhttp.And(rlhttp.Every(7, time.Minute)))
	ask(limit, ok)
	var ids []string
	for _, call := range fake.Calls() {
		_, after, _ := strings.Cut(call.Policy, `"id":"`)
		id, _, _ := strings.Cut(after, `"`)
		ids = append(ids, id)
	}
	if !reflect.DeepEqual(ids, []string{"GET /x", "GET /x#2", ""}) {
		t.Error(ids, fake.Calls())
	}
}

func TestUnitsThatAreKnownAfterwardsAreCharged(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	units := rlhttp.ChargeUnits(func(_ *http.Request, status int) int64 { return int64(status - 200) })
	for _, row := range []struct {
		option rlhttp.Option
		left   func() int64
	}{
		{rlhttp.Policy("web"), func() int64 { return left(t, client, "web") }},
		{rlhttp.Every(20, time.Minute), func() int64 {
			d, _ := client.Peek(context.Background(), ratelimit.Every(20, time.Minute), client.Service()+"|x|192.0.2.1")
			return d.Remaining
		}},
	} {
		limit := rlhttp.Limit(client, row.option, units, rlhttp.EndpointName("x"))
		for status, want := range map[int]int64{200: 0, 201: 1, 205: 5} {
			before := row.left()
			ask(limit, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			if charged := before - row.left(); charged != want {
				t.Error(status, charged)
			}
		}
	}
}

func TestSomeRequestsAreNotLimited(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Deny("web", -1)
	client := fake.Client()
	none := func(*http.Request) (string, error) { return "", rlhttp.ErrNoLimit }

	for what, answer := range map[string]*httptest.ResponseRecorder{
		"skipped":  ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Skip(func(*http.Request) bool { return true })), ok),
		"exempt":   ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Key(none)), ok),
		"off":      ask(rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Enabled(false)), ok),
		"disabled": ask(rlhttp.Limit(ratelimit.New(ratelimit.WithEnabled(false)), rlhttp.Policy("web")), ok),
	} {
		if answer.Code != 200 {
			t.Error(what, answer.Code)
		}
	}
	if calls := fake.Calls(); len(calls) != 0 {
		t.Error(calls)
	}
}

func TestKeysOfRequests(t *testing.T) {
	form := func(r *http.Request) {
		*r = *httptest.NewRequest("POST", "/", strings.NewReader(url.Values{"user": {"a|b"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	forwarded := header("X-Forwarded-For", "203.0.113.9, 198.51.100.7")
	user := func(r *http.Request) (string, bool) { name, _, known := r.BasicAuth(); return name, known }

	for want, row := range map[string]struct {
		key    rlhttp.KeyFunc
		change func(*http.Request)
	}{
		"192.0.2.1":       {rlhttp.ByIP(), forwarded},
		"198.51.100.7":    {rlhttp.ByIP(rlhttp.Trust("192.0.2.0/24")), forwarded},
		"203.0.113.9":     {rlhttp.ByIP(rlhttp.TrustHops(2)), forwarded},
		"a|b":             {rlhttp.ByForm("user"), form},
		"-":               {rlhttp.ByForm("token"), form},
		"a%7Cb|192.0.2.1": {rlhttp.Join(rlhttp.ByForm("user"), rlhttp.ByIP()), form},
		"u|alice":         {rlhttp.ByUser(user), func(r *http.Request) { r.SetBasicAuth("alice", "") }},
		"i|192.0.2.1":     {rlhttp.ByUser(user), form},
	} {
		fake := ratelimittest.NewFake()
		ask(rlhttp.Limit(fake.Client(), rlhttp.Policy("web"), rlhttp.Key(row.key)), ok, row.change)
		if calls := fake.Calls(); len(calls) != 1 || calls[0].Key != want {
			t.Error(want, calls)
		}
	}
}

func TestRespondReplacesTheAnswer(t *testing.T) {
	fake := ratelimittest.NewFake()
	fake.Deny("web", 1500)
	limit := rlhttp.Limit(fake.Client(), rlhttp.Policy("web"),
		rlhttp.Respond(func(w http.ResponseWriter, r *http.Request, denied ratelimit.Decision) {
			http.Error(w, denied.RetryAfter().String(), http.StatusTeapot)
		}))

	if answer := ask(limit, ok); answer.Code != http.StatusTeapot || answer.Body.String() != "1.5s\n" {
		t.Fatal(answer)
	}
}

func TestAnAnswerOfTheProgramKeepsTheFieldsOfTheLimit(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	for name, write := range map[string]func(http.ResponseWriter){
		"a body":   func(w http.ResponseWriter) { io.WriteString(w, "slow down") },
		"a status": func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) },
		"nothing":  func(http.ResponseWriter) {},
	} {
		own := func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "99")
			w.Header().Set("X-RateLimit-Limit", "99")
			write(w)
		}
		limit := rlhttp.Limit(client, rlhttp.Policy("login"), rlhttp.PerEndpoint(), rlhttp.EndpointName(name),
			rlhttp.Headers(rlhttp.Both), rlhttp.Respond(
				func(w http.ResponseWriter, _ *http.Request, _ ratelimit.Decision) { own(w) }))

		for i, retryAfter := range []string{"99", "99", "60"} { // the third is denied
			answer := ask(limit, func(w http.ResponseWriter, _ *http.Request) { own(w) }).Result().Header
			if answer.Get("X-RateLimit-Limit") != "2" || answer.Get("Retry-After") != retryAfter {
				t.Error(name, i, answer)
			}
		}
	}
}

// A real server, because a recorder can do less than a connection.
func TestFlushingAndHijackingWorkThroughTheLimit(t *testing.T) {
	always := func(*http.Request, int) bool { return true }
	limit := rlhttp.Limit(ratelimittest.NewFake().Client(), rlhttp.Policy("web"), rlhttp.ChargeWhen(always))
	server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/controller":
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
		case "/flusher":
			w.(http.Flusher).Flush()
		case "/hijacker":
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, "HTTP/1.1 299 Taken\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		}
	})))
	defer server.Close()

	for path, want := range map[string]int{"/controller": 200, "/flusher": 200, "/hijacker": 299} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != want {
			t.Error(path, answer, err)
		}
		conn.Close()
	}
}

func TestALimitByTheRequestChargesSomeAnswersAndShowsItsDecision(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client(ratelimit.WithService("shop"))
	limit := rlhttp.Limit(client, rlhttp.Name("plan"), rlhttp.EndpointName("*"),
		rlhttp.EveryOf(func(*http.Request) (int64, time.Duration) { return 1, time.Minute }),
		rlhttp.ChargeWhen(func(_ *http.Request, status int) bool { return status == 403 }))
	seen := ratelimit.Decision{}
	handler := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			seen, _ = rlhttp.DecisionOf(r.Context())
			w.WriteHeader(status)
		}
	}

	for i, step := range []struct{ status, want int }{{200, 200}, {200, 200}, {403, 403}, {200, 429}} {
		if answer := ask(limit, handler(step.status)); answer.Code != step.want || seen.Of != "plan" {
			t.Error(i, answer.Code, seen.Of)
		}
	}
	if d, err := client.Peek(context.Background(), ratelimit.Every(1, time.Minute), "shop|*|192.0.2.1"); err != nil ||
		d.Remaining != 0 {
		t.Error(d, err)
	}
}

func TestContradictionsEndTheProgramAtItsStart(t *testing.T) {
	client := ratelimittest.NewFake().Client()
	always := func(*http.Request, int) bool { return true }
	for what, set := range map[string]func(){
		"slot with ChargeWhen": func() { rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.Slot(), rlhttp.ChargeWhen(always)) },
		"no limit":             func() { rlhttp.Limit(client, rlhttp.Rate("ten a second")) },
		"nothing":              func() { rlhttp.Limit(client) },
		"nothing in And":       func() { rlhttp.Limit(client, rlhttp.Policy("web"), rlhttp.And(rlhttp.Slot())) },
		"no address":           func() { rlhttp.Trust("proxy.example") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error(what)
				}
			}()
			set()
		}()
	}
}
