package rlgin_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/routers"
	"github.com/ratelimitd/ratelimitd/clients/go/rlgin"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func init() { gin.SetMode(gin.TestMode) }

type router struct {
	*gin.Engine
	client *ratelimit.Client
}

func newRouter(client *ratelimit.Client) routers.Router {
	engine := gin.New()
	engine.Use(gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, _ any) { c.AbortWithStatus(500) }))
	engine.Use(func(c *gin.Context) { c.Next(); c.Header("X-After", "yes") })
	return router{engine, client}
}

func (r router) Handle(method, pattern string, work func(func(string) string) int, options ...rlhttp.Option) {
	r.Engine.Handle(method, pattern, rlgin.Limit(r.client, options...), func(c *gin.Context) { c.Status(work(c.PostForm)) })
}

func (r router) HandleWriter(method, pattern string, handler http.HandlerFunc, options ...rlhttp.Option) {
	r.Engine.Handle(method, pattern, rlgin.Limit(r.client, options...), gin.WrapF(handler))
}

func (r router) Global(options ...rlhttp.Option) { r.Use(rlgin.Limit(r.client, options...)) }

func (r router) UserKey() rlhttp.Option {
	return rlgin.Key(func(c *gin.Context) (string, error) { return c.Param("realm") + c.PostForm("user"), nil })
}

func TestLimits(t *testing.T) { routers.Test(t, newRouter) }
