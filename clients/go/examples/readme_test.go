package examples

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"google.golang.org/grpc"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlecho"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgin"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgrpc"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

// Every snippet of README.md stands in a test below, word for word.

const configuration = `
policies:
  default: {algorithm: fixed_window, limit: 100, window: 1s}
  search: {algorithm: fixed_window, limit: 1, window: 1s}
  web: {algorithm: fixed_window, limit: 100, window: 1m}
  login: {algorithm: fixed_window, limit: 1, window: 1m}
  api: {algorithm: token_bucket, limit: 100, window: 1m}
  user: {algorithm: fixed_window, limit: 5, window: 1m}
  tenant: {algorithm: fixed_window, limit: 50, window: 1m}
  report: {algorithm: concurrency, limit: 1}
  llm: {algorithm: token_bucket, limit: 10000, window: 1m}
inline: {allow: true}
`

func TestEverySnippetStandsHere(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}

	snippets := 0
	for _, block := range strings.Split(string(readme), "```go\n")[1:] {
		snippet, _, _ := strings.Cut(block, "```")
		snippets++
		if !strings.Contains(unindented(string(here)), unindented(snippet)) {
			t.Errorf("no test has this snippet:\n%s", snippet)
		}
	}
	if snippets < 10 {
		t.Error(snippets)
	}
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

// begin has ratelimit.New() find a daemon.
func begin(t *testing.T) (*ratelimit.Client, context.Context) {
	daemon := ratelimittest.Start(t, configuration)
	t.Setenv("RATELIMIT_SOCKET", daemon.Socket)
	return daemon.Client(), context.Background()
}

func ok(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }

var search, export, report = ok, ok, ok

// statuses asks twice, or more often.
func statuses(t *testing.T, handler http.Handler, method, path string, want ...int) {
	t.Helper()
	for _, status := range want {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
		if answer.Code != status {
			t.Errorf("%s %s: %d, not %d", method, path, answer.Code, status)
		}
	}
}

func TestLimitAnEndpoint(t *testing.T) {
	begin(t)

	client := ratelimit.New() // $RATELIMIT_SOCKET; connects when first asked; for all goroutines
	defer client.Close()

	mux := http.NewServeMux()
	limit := rlhttp.Limit(client, rlhttp.Policy("search"))
	mux.Handle("GET /search", limit(http.HandlerFunc(search)))

	statuses(t, mux, "GET", "/search", 200, 429)
}

func TestChi(t *testing.T) {
	client, _ := begin(t)

	router := chi.NewRouter()
	router.With(rlhttp.Limit(client, rlhttp.Every(10, 5*time.Second))).Get("/export", export)
	router.With(rlhttp.Limit(client, rlhttp.Rate("5000/day"))).Get("/report", report)

	statuses(t, router, "GET", "/export", 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429)
	statuses(t, router, "GET", "/report", 200)
}

func TestChiCountsByPattern(t *testing.T) {
	client, _ := begin(t)
	router := chi.NewRouter()
	limit := rlhttp.Limit(client, rlhttp.Every(1, time.Minute))
	router.With(limit).Get("/a/{id}", ok)
	router.Route("/b", func(r chi.Router) { r.With(limit).Get("/{id}", ok) })

	statuses(t, router, "GET", "/a/1", 200)
	statuses(t, router, "GET", "/a/2", 429)
	statuses(t, router, "GET", "/b/1", 200)
	statuses(t, router, "GET", "/b/2", 429)
}

func TestGin(t *testing.T) {
	client, _ := begin(t)
	gin.SetMode(gin.TestMode)
	searchGin := func(c *gin.Context) { c.Status(200) }

	router := gin.New()
	router.GET("/search", rlgin.Limit(client, rlhttp.Policy("search")), searchGin)

	statuses(t, router, "GET", "/search", 200, 429)
}

func TestEcho(t *testing.T) {
	client, _ := begin(t)
	searchEcho := func(c echo.Context) error { return c.NoContent(200) }

	e := echo.New()
	e.GET("/search", searchEcho, rlecho.Limit(client, rlhttp.Policy("search")))

	statuses(t, e, "GET", "/search", 200, 429)
}

func TestGRPCAndVerify(t *testing.T) {
	client, ctx := begin(t)

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(rlgrpc.Unary(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
		grpc.ChainStreamInterceptor(rlgrpc.Stream(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
	)
	defer server.Stop()

	if err := client.Verify(ctx); err != nil {
		log.Fatal(err) // such as: the daemon's configuration has no serach
	}
}

func TestOptions(t *testing.T) {
	client, _ := begin(t)

	account := func(r *http.Request) (string, error) { return cmp.Or(r.PostFormValue("user"), "-"), nil }
	login := rlhttp.Limit(client,
		rlhttp.Policy("login"),
		rlhttp.Key(rlhttp.Join(account, rlhttp.ByIP())), // the account, from this address
		rlhttp.OnError(ratelimit.Deny),
		rlhttp.ChargeWhen(func(r *http.Request, status int) bool { return status == http.StatusUnauthorized }))

	global := rlhttp.Limit(client,
		rlhttp.Policy("web"),
		rlhttp.Skip(func(r *http.Request) bool { return r.URL.Path == "/healthz" }),
		rlhttp.And(rlhttp.Policy("tenant"), rlhttp.Key(rlhttp.ByHeader("X-Tenant")))) // without the header: 503

	handler := global(login(http.HandlerFunc(ok)))
	for range 2 {
		request := httptest.NewRequest("POST", "/login", strings.NewReader("user=alice"))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("X-Tenant", "acme")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != 200 {
			t.Error(answer.Code)
		}
	}

	wrong := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for n, body := range []string{"user=eve", "", "user=", "user", "%zz", `{"user": 5}`, "user[]=a&user=eve"} {
		request := httptest.NewRequest("POST", "/login;a=1", strings.NewReader(body))
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", n))
		answer := httptest.NewRecorder()
		login(http.HandlerFunc(wrong)).ServeHTTP(answer, request)
		if (answer.Code == 401) != (n < 2) { // eve, then everything without a name; the limit is 1
			t.Error(body, answer.Code)
		}
	}
}

func TestALimitByTheRequestAndTheDecisionInTheHandler(t *testing.T) {
	client, _ := begin(t)
	planOf := func(r *http.Request) int64 { return map[string]int64{"alice": 2}[r.Header.Get("X-User")] + 1 }

	plan := func(r *http.Request) (int64, time.Duration) { return planOf(r), time.Minute } // by what you know of the user
	search := rlhttp.Limit(client, rlhttp.EveryOf(plan), rlhttp.Name("search"))

	handler := http.NewServeMux()
	handler.Handle("GET /search", search(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decision, decided := rlhttp.DecisionOf(r.Context())
		fmt.Fprintln(w, decision.Remaining, "left", decided)
	})))
	for user, want := range map[string]string{"alice": "2 left true\n", "": "0 left true\n"} {
		request := httptest.NewRequest("GET", "/search", nil)
		request.Header.Set("X-User", user)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Body.String() != want {
			t.Errorf("%q: %s", user, answer.Body)
		}
	}
}

func TestBehindAProxy(t *testing.T) {
	client, _ := begin(t)

	key := rlhttp.Key(rlhttp.ByIP(rlhttp.Trust("10.0.0.0/8"))) // or rlhttp.TrustHops(1)

	statuses(t, rlhttp.Limit(client, rlhttp.Policy("web"), key)(http.HandlerFunc(ok)), "GET", "/", 200)
}

func TestAsk(t *testing.T) {
	client, ctx := begin(t)
	tenant := "acme"

	d, err := client.Check(ctx, "api", tenant, ratelimit.Cost(10))
	var unavailable *ratelimit.UnavailableError
	switch {
	case errors.As(err, &unavailable):
		fmt.Println("no answer:", unavailable.Kind, unavailable.MaybeCharged)
	case err != nil:
		log.Fatal(err) // *ratelimit.RefusedError: a mistake in the program or the configuration
	case !d.Allowed:
		fmt.Println("again in", d.RetryAfter())
	default:
		fmt.Println("allowed,", d.Remaining, "left")
	}

	if err != nil || !d.Allowed || d.Remaining != 90 {
		t.Error(d, err)
	}
}

func TestAskForAll(t *testing.T) {
	client, ctx := begin(t)
	user, tenant := "alice", "acme"

	d, err := client.CheckAll(ctx, []ratelimit.Item{
		ratelimit.Of("user", user),
		ratelimit.Of("tenant", tenant, ratelimit.Cost(10)),
	})

	if err != nil || !d.Allowed || len(d.Members) != 2 {
		t.Error(d, err)
	}
}

func TestSlot(t *testing.T) {
	client, ctx := begin(t)
	tenant, done := "acme", 0
	build := func() {
		slot, d, err := client.Acquire(ctx, "report", tenant)
		if err != nil || !d.Allowed {
			return
		}
		defer slot.Release()
		done++
	}

	build()
	build()
	if done != 2 {
		t.Error(done)
	}
}

func TestReservation(t *testing.T) {
	client, ctx := begin(t)
	tenant := "acme"
	generate := func(context.Context) int64 { return 1200 }
	func() {
		r, d, err := client.Reserve(ctx, "llm", tenant, 2000, ratelimit.TTL(5*time.Minute))
		if err != nil || !d.Allowed {
			return
		}
		defer r.Cancel(ctx) // does nothing after Settle

		tokens := generate(ctx)
		r.Settle(ctx, tokens)
	}()

	if d, err := client.Peek(ctx, "llm", tenant); err != nil || d.Remaining != 8800 {
		t.Error(d, err)
	}
}

func TestFake(t *testing.T) {
	ctx := context.Background()

	fake := ratelimittest.NewFake()
	fake.Deny("login", 3000)
	d, err := fake.Client().Check(ctx, "login", "alice")

	if err != nil || d.Allowed || d.RetryAfter() != 3*time.Second {
		t.Error(d, err)
	}
}

func TestRealDaemon(t *testing.T) {
	ctx := context.Background()

	daemon := ratelimittest.Start(t, "policies: {once: {algorithm: fixed_window, limit: 1, window: 1h}}")
	client := daemon.Client()
	before, _ := client.Check(ctx, "once", "k")
	denied, _ := client.Check(ctx, "once", "k")
	daemon.Advance(time.Hour)
	after, _ := client.Check(ctx, "once", "k")

	if !before.Allowed || denied.Allowed || !after.Allowed {
		t.Error(before, denied, after)
	}
}
