// The example service with gin.
package main

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/examples/service"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgin"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func main() {
	client := ratelimit.New(service.Timeout())
	defer client.Close()
	limit := func(options ...rlhttp.Option) gin.HandlerFunc { return rlgin.Limit(client, options...) }

	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	get := func(path string, handlers ...gin.HandlerFunc) {
		router.Match([]string{http.MethodGet, http.MethodHead}, path, handlers...)
	}
	get("/ok", limit(rlhttp.Policy("web")), say("ok"))
	router.POST("/login", limit(rlhttp.Policy("login"), service.User(), rlhttp.OnError(ratelimit.Deny),
		rlhttp.ChargeWhen(service.Failed)), login)
	get("/inline", limit(rlhttp.Every(2, 5*time.Second)), say("inline"))
	get("/two", limit(rlhttp.Policy("web"), service.Two()), say("two"))
	get("/slow", limit(rlhttp.Policy("slow"), rlhttp.Slot()), slow)
	get("/stream", limit(rlhttp.Policy("stream"), rlhttp.Slot()), stream)
	get("/cost", limit(rlhttp.Policy("budget"), rlhttp.CostOf(service.Cost)), cost)
	get("/skip", limit(rlhttp.Policy("login"), rlhttp.Skip(service.IsProbe)), say("skip"))
	get("/down", limit(rlhttp.Policy("web"), rlhttp.OnError(ratelimit.Deny)), say("down"))
	get("/plan", limit(service.OfPlan()...), say("plan"))
	get("/choose", limit(service.OfChoice()), say("choose"))
	get("/left", limit(rlhttp.Policy("web")), gin.WrapF(service.Left))
	get("/guess", limit(service.OfGuess()...), gin.WrapF(service.Guess))
	get("/own", limit(service.OfOwn()...), own)
	service.Attacks(attacked{router, &router.RouterGroup, client}, client)
	service.Run(service.Hook(router))
}

func say(line string) gin.HandlerFunc {
	return func(c *gin.Context) { c.String(http.StatusOK, "%s\n", line) }
}

func own(c *gin.Context) {
	c.Header("X-RateLimit-Limit", "99")
	c.String(http.StatusOK, "own\n")
}

func login(c *gin.Context) {
	if c.PostForm("password") != "right" {
		c.String(http.StatusUnauthorized, "wrong\n")
		return
	}
	c.String(http.StatusOK, "welcome\n")
}

func slow(c *gin.Context) {
	service.Wait(c.Request.Context(), service.Number(c.Request, "ms"))
	c.String(http.StatusOK, "slow\n")
}

func stream(c *gin.Context) {
	lines := []string{"one\n", "two\n", "three\n"}
	c.Header("Content-Type", "text/plain; charset=utf-8")
	c.Stream(func(w io.Writer) bool {
		io.WriteString(w, lines[0])
		c.Writer.Flush()
		lines = lines[1:]
		return len(lines) > 0 && service.Wait(c.Request.Context(), 100)
	})
}

func cost(c *gin.Context) { c.String(http.StatusOK, "cost %d\n", service.Number(c.Request, "n")) }

type attacked struct {
	engine *gin.Engine
	*gin.RouterGroup
	client *ratelimit.Client
}

func (a attacked) Handle(methods []string, path string, handler http.HandlerFunc, limits ...[]rlhttp.Option) {
	var handlers []gin.HandlerFunc
	for _, options := range limits {
		handlers = append(handlers, rlgin.Limit(a.client, options...))
	}
	handlers = append(handlers, gin.WrapF(handler))
	path = strings.ReplaceAll(path, "{id}", ":id")
	if methods == nil {
		a.Any(path, handlers...)
		return
	}
	a.Match(methods, path, handlers...)
}

func (a attacked) Group(path string, limit []rlhttp.Option, routes func(service.Router)) {
	part := a.RouterGroup.Group(path)
	if limit != nil {
		part.Use(rlgin.Limit(a.client, limit...))
	}
	routes(attacked{a.engine, part, a.client})
}

func (a attacked) Forward(w http.ResponseWriter, r *http.Request, path string) {
	again := r.Clone(r.Context())
	again.URL.Path, again.URL.RawPath = path, ""
	a.engine.ServeHTTP(w, again)
}

func (a attacked) Name(method, path string) string { return method + " " + path }
