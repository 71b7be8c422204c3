package rlecho_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlecho"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

const configuration = `
policies:
  login: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  one: {algorithm: concurrency, limit: 1}
inline: {allow: true}
`

func ask(router http.Handler, method, path string, form url.Values) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	router.ServeHTTP(answer, request)
	return answer
}

func TestARouteIsLimitedByItsPattern(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	e := echo.New()
	limit := rlecho.Limit(client, rlhttp.Every(1, time.Minute))
	handled := 0
	handler := func(c echo.Context) error { handled++; return c.String(200, "ok") }
	e.GET("/a/:id", handler, limit)
	e.GET("/b", handler, limit)

	for _, step := range []struct {
		path string
		want int
	}{{"/a/1", 200}, {"/a/2", 429}, {"/b", 200}, {"/b", 429}} {
		answer := ask(e, "GET", step.path, nil)
		if answer.Code != step.want || answer.Header().Get("RateLimit") == "" {
			t.Error(step, answer.Code, answer.Header())
		}
	}
	if handled != 2 {
		t.Error("a denied request has come to its handler: ", handled)
	}
}

func TestAKeyMayUseTheContextAndAnErrorHasItsStatus(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	e := echo.New()
	user := func(c echo.Context) (string, error) { return c.Param("realm") + c.FormValue("user"), nil }
	failed := func(_ *http.Request, status int) bool { return status == 401 }
	handler := func(c echo.Context) error {
		if c.FormValue("password") == "right" {
			return c.NoContent(204)
		}
		return echo.NewHTTPError(401, "wrong")
	}
	limit := rlecho.Limit(client, rlhttp.Policy("login"), rlecho.Key(user), rlhttp.ChargeWhen(failed))
	e.POST("/:realm", handler, limit)

	for _, step := range []struct {
		user, password string
		want           int
	}{
		{"a", "right", 204}, {"a", "x", 401}, {"a", "right", 204}, {"a", "x", 401},
		{"a", "right", 429}, {"b", "x", 401},
	} {
		answer := ask(e, "POST", "/realm", url.Values{"user": {step.user}, "password": {step.password}})
		if answer.Code != step.want {
			t.Error(step, answer.Code)
		}
	}
}

func TestAPanicReleasesTheSlot(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	e := echo.New()
	quiet := func(_ echo.Context, err error, _ []byte) error { return err }
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: quiet}))
	limit := rlecho.Limit(client, rlhttp.Policy("one"), rlhttp.Slot())
	e.GET("/", func(echo.Context) error { panic("as the test wants it") }, limit)

	for range 2 {
		if answer := ask(e, "GET", "/", nil); answer.Code != 500 {
			t.Fatal(answer.Code)
		}
	}
}

func TestAGlobalLimitSeesUnknownPathsToo(t *testing.T) {
	fake := ratelimittest.NewFake()
	e := echo.New()
	e.Pre(rlecho.Limit(fake.Client(ratelimit.WithOnError(ratelimit.Deny)), rlhttp.Every(1, time.Second)))

	if answer := ask(e, "GET", "/nowhere", nil); answer.Code != 404 || fake.Calls()[0].Key != "*|192.0.2.1" {
		t.Error(answer.Code, fake.Calls())
	}
	fake.Unavailable(ratelimit.KindTimeout)
	if answer := ask(e, "GET", "/nowhere", nil); answer.Code != 503 {
		t.Error(answer.Code)
	}
}
