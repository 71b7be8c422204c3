// Package routers has the tests that the middleware of every router passes.
package routers

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

const configuration = `
policies:
  login: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  one: {algorithm: concurrency, limit: 1}
inline: {allow: true}
`

// A Router is one of a framework, with its middleware. A panic of a handler becomes 500.
type Router interface {
	http.Handler
	// Handle adds a limited route. work gets the fields of the form, and returns the status of the answer.
	Handle(method, pattern string, work func(field func(string) string) int, options ...rlhttp.Option)
	// HandleWriter adds a limited route with a handler of net/http.
	HandleWriter(method, pattern string, handler http.HandlerFunc, options ...rlhttp.Option)
	// Global limits every request, before a route is looked for.
	Global(options ...rlhttp.Option)
	// UserKey is made, by the framework's context, of the route's parameter `realm` and the form's field `user`.
	UserKey() rlhttp.Option
}

// Test runs the tests with routers that ask the given client.
func Test(t *testing.T, newRouter func(*ratelimit.Client) Router) {
	start := func(t *testing.T) Router { return newRouter(ratelimittest.Start(t, configuration).Client()) }
	t.Run("ARouteIsLimitedByItsPattern", func(t *testing.T) { byPattern(t, start(t)) })
	t.Run("AKeyMayUseTheContextAndTheStatusDecidesTheCharge", func(t *testing.T) { byContext(t, start(t)) })
	t.Run("FieldsOfTheApplicationAreReplaced", func(t *testing.T) { ownFields(t, start(t)) })
	t.Run("APanicReleasesTheSlot", func(t *testing.T) { afterPanic(t, start(t)) })
	t.Run("AGlobalLimitSeesUnknownPathsToo", func(t *testing.T) {
		fake := ratelimittest.NewFake()
		global(t, fake, newRouter(fake.Client(ratelimit.WithOnError(ratelimit.Deny), ratelimit.WithService("shop"))))
	})
}

func ask(router http.Handler, method, path string, form url.Values) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	router.ServeHTTP(answer, request)
	return answer
}

func byPattern(t *testing.T, router Router) {
	handled := 0
	work := func(func(string) string) int { handled++; return 200 }
	router.Handle("GET", "/a/:id", work, rlhttp.Every(1, time.Minute))
	router.Handle("GET", "/b", work, rlhttp.Every(1, time.Minute))

	for _, step := range []struct {
		path string
		want int
	}{{"/a/1", 200}, {"/a/2", 429}, {"/b", 200}, {"/b", 429}} {
		answer := ask(router, "GET", step.path, nil)
		if answer.Code != step.want || answer.Header().Get("RateLimit") == "" {
			t.Error(step, answer.Code, answer.Header())
		}
	}
	if handled != 2 {
		t.Error("a denied request has come to its handler: ", handled)
	}
}

func byContext(t *testing.T, router Router) {
	work := func(field func(string) string) int {
		if field("user") == "" {
			t.Error("the form is gone")
		}
		if field("password") == "right" {
			return 204
		}
		return 401
	}
	failed := func(_ *http.Request, status int) bool { return status == 401 }
	router.Handle("POST", "/:realm", work, rlhttp.Policy("login"), router.UserKey(), rlhttp.ChargeWhen(failed))

	for _, step := range []struct {
		user, password string
		want           int
	}{
		{"a", "right", 204}, {"a", "x", 401}, {"a", "right", 204}, {"a", "x", 401},
		{"a", "right", 429}, {"b", "x", 401},
	} {
		answer := ask(router, "POST", "/realm", url.Values{"user": {step.user}, "password": {step.password}})
		if answer.Code != step.want {
			t.Error(step, answer.Code)
		}
	}
}

func ownFields(t *testing.T, router Router) {
	for path, write := range map[string]func(http.ResponseWriter){
		"/body":    func(w http.ResponseWriter) { w.Write([]byte("ok")) },
		"/status":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
		"/flush":   func(w http.ResponseWriter) { http.NewResponseController(w).Flush() },
		"/nothing": func(http.ResponseWriter) {},
	} {
		router.HandleWriter("GET", path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-RateLimit-Limit", "99")
			write(w)
		}, rlhttp.Policy("login"), rlhttp.PerEndpoint(), rlhttp.Headers(rlhttp.Both))

		if found := ask(router, "GET", path, nil).Result().Header; found.Get("X-RateLimit-Limit") != "2" {
			t.Error(path, found)
		}
	}
}

func afterPanic(t *testing.T, router Router) {
	work := func(func(string) string) int { panic("as the test wants it") }
	router.Handle("GET", "/", work, rlhttp.Policy("one"), rlhttp.Slot())

	for range 2 {
		if answer := ask(router, "GET", "/", nil); answer.Code != 500 {
			t.Fatal(answer.Code)
		}
	}
}

func global(t *testing.T, fake *ratelimittest.Fake, router Router) {
	router.Global(rlhttp.Every(1, time.Second))

	if answer := ask(router, "GET", "/nowhere", nil); answer.Code != 404 || fake.Calls()[0].Key != "shop|*|192.0.2.1" {
		t.Error(answer.Code, fake.Calls())
	}
	fake.Unavailable(ratelimit.KindTimeout)
	if answer := ask(router, "GET", "/nowhere", nil); answer.Code != 503 {
		t.Error(answer.Code)
	}
}
