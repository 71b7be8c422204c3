package rlgin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgin"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

const configuration = `
policies:
  login: {algorithm: fixed_window, limit: 2, window: 1m, start: first_hit}
  one: {algorithm: concurrency, limit: 1}
inline: {allow: true}
`

func init() { gin.SetMode(gin.TestMode) }

func ask(router http.Handler, method, path string, form url.Values) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := httptest.NewRecorder()
	router.ServeHTTP(answer, request)
	return answer
}

func TestARouteIsLimitedByItsPattern(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	router := gin.New()
	router.Use(func(c *gin.Context) { c.Next(); c.Header("X-After", "yes") })
	limit := rlgin.Limit(client, rlhttp.Every(1, time.Minute))
	handled := 0
	handler := func(c *gin.Context) { handled++; c.String(200, "ok") }
	router.GET("/a/:id", limit, handler)
	router.GET("/b", limit, handler)

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

func TestAKeyMayUseTheContextAndTheHandlerStillSeesTheForm(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	router := gin.New()
	user := func(c *gin.Context) (string, error) { return c.Param("realm") + c.PostForm("user"), nil }
	failed := func(_ *http.Request, status int) bool { return status == 401 }
	limit := rlgin.Limit(client, rlhttp.Policy("login"), rlgin.Key(user), rlhttp.ChargeWhen(failed))
	router.POST("/:realm", limit, func(c *gin.Context) {
		if c.PostForm("user") == "" {
			t.Error("the form is gone")
		}
		if c.PostForm("password") == "right" {
			c.Status(204)
			return
		}
		c.AbortWithStatus(401)
	})

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

func TestAPanicReleasesTheSlot(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	router := gin.New()
	router.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	limit := rlgin.Limit(client, rlhttp.Policy("one"), rlhttp.Slot())
	router.GET("/", limit, func(*gin.Context) { panic("as the test wants it") })

	for range 2 {
		if answer := ask(router, "GET", "/", nil); answer.Code != 500 {
			t.Fatal(answer.Code)
		}
	}
}

func TestAGlobalLimitStandsBeforeRouting(t *testing.T) {
	fake := ratelimittest.NewFake()
	router := gin.New()
	router.Use(rlgin.Limit(fake.Client(ratelimit.WithOnError(ratelimit.Deny)), rlhttp.Every(1, time.Second)))

	if answer := ask(router, "GET", "/nowhere", nil); answer.Code != 404 || fake.Calls()[0].Key != "*|192.0.2.1" {
		t.Error(answer.Code, fake.Calls())
	}
	fake.Unavailable(ratelimit.KindTimeout)
	if answer := ask(router, "GET", "/nowhere", nil); answer.Code != 503 {
		t.Error(answer.Code)
	}
}
