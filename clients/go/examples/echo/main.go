// The example service with echo.
package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/examples/service"
	"github.com/ratelimitd/ratelimitd/clients/go/rlecho"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func main() {
	client := ratelimit.New(service.Timeout())
	defer client.Close()
	limit := func(options ...rlhttp.Option) echo.MiddlewareFunc { return rlecho.Limit(client, options...) }

	e := echo.New()
	get := func(path string, handler echo.HandlerFunc, limits ...echo.MiddlewareFunc) {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, handler, limits...)
	}
	get("/ok", say("ok"), limit(rlhttp.Policy("web")))
	e.POST("/login", login, limit(rlhttp.Policy("login"), service.User(), rlhttp.OnError(ratelimit.Deny),
		rlhttp.ChargeWhen(service.Failed)))
	get("/inline", say("inline"), limit(rlhttp.Every(2, 5*time.Second)))
	get("/two", say("two"), limit(rlhttp.Policy("web"), service.Two()))
	get("/slow", slow, limit(rlhttp.Policy("slow"), rlhttp.Slot()))
	get("/stream", stream, limit(rlhttp.Policy("stream"), rlhttp.Slot()))
	get("/cost", cost, limit(rlhttp.Policy("budget"), rlhttp.CostOf(service.Cost)))
	get("/skip", say("skip"), limit(rlhttp.Policy("login"), rlhttp.Skip(service.IsProbe)))
	get("/down", say("down"), limit(rlhttp.Policy("web"), rlhttp.OnError(ratelimit.Deny)))
	get("/plan", say("plan"), limit(service.OfPlan()...))
	get("/choose", say("choose"), limit(service.OfChoice()))
	get("/left", echo.WrapHandler(http.HandlerFunc(service.Left)), limit(rlhttp.Policy("web")))
	get("/guess", echo.WrapHandler(http.HandlerFunc(service.Guess)), limit(service.OfGuess()...))
	get("/own", own, limit(service.OfOwn()...))
	service.Attacks(attacked{e, e.Group(""), client}, client)
	service.Run(service.Hook(e))
}

func say(line string) echo.HandlerFunc {
	return func(c echo.Context) error { return text(c, line) }
}

func text(c echo.Context, line string) error {
	return c.Blob(http.StatusOK, "text/plain; charset=utf-8", []byte(line+"\n"))
}

func own(c echo.Context) error {
	c.Response().Header().Set("X-RateLimit-Limit", "99")
	return text(c, "own")
}

func login(c echo.Context) error {
	if c.FormValue("password") != "right" {
		return c.Blob(http.StatusUnauthorized, "text/plain; charset=utf-8", []byte("wrong\n"))
	}
	return text(c, "welcome")
}

func slow(c echo.Context) error {
	service.Wait(c.Request().Context(), service.Number(c.Request(), "ms"))
	return text(c, "slow")
}

func stream(c echo.Context) error {
	c.Response().Header().Set("Content-Type", "text/plain; charset=utf-8")
	for i, line := range []string{"one\n", "two\n", "three\n"} {
		if i > 0 && !service.Wait(c.Request().Context(), 100) {
			return nil
		}
		io.WriteString(c.Response(), line)
		c.Response().Flush()
	}
	return nil
}

func cost(c echo.Context) error {
	return text(c, fmt.Sprintf("cost %d", service.Number(c.Request(), "n")))
}

type attacked struct {
	echo   *echo.Echo
	group  *echo.Group
	client *ratelimit.Client
}

func (a attacked) Handle(methods []string, path string, handler http.HandlerFunc, limits ...[]rlhttp.Option) {
	var middleware []echo.MiddlewareFunc
	for _, options := range limits {
		middleware = append(middleware, rlecho.Limit(a.client, options...))
	}
	path = strings.ReplaceAll(path, "{id}", ":id")
	if methods == nil {
		a.group.Any(path, echo.WrapHandler(handler), middleware...)
		return
	}
	a.group.Match(methods, path, echo.WrapHandler(handler), middleware...)
}

func (a attacked) Group(path string, limit []rlhttp.Option, routes func(service.Router)) {
	part := a.group.Group(path)
	if limit != nil {
		part.Use(rlecho.Limit(a.client, limit...))
	}
	routes(attacked{a.echo, part, a.client})
}

func (a attacked) Forward(w http.ResponseWriter, r *http.Request, path string) {
	again := r.Clone(r.Context())
	again.URL.Path, again.URL.RawPath = path, ""
	a.echo.ServeHTTP(w, again)
}

func (a attacked) Name(method, path string) string { return method + " " + path }
