package rlecho_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/routers"
	"github.com/ratelimitd/ratelimitd/clients/go/rlecho"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

type router struct {
	*echo.Echo
	client *ratelimit.Client
}

func newRouter(client *ratelimit.Client) routers.Router {
	e := echo.New()
	quiet := func(_ echo.Context, err error, _ []byte) error { return err }
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: quiet}))
	return router{e, client}
}

// Handle answers failures by an error, as handlers of echo do.
func (r router) Handle(method, pattern string, work func(func(string) string) int, options ...rlhttp.Option) {
	r.Add(method, pattern, func(c echo.Context) error {
		if status := work(c.FormValue); status < 400 {
			return c.NoContent(status)
		} else {
			return echo.NewHTTPError(status, "wrong")
		}
	}, rlecho.Limit(r.client, options...))
}

func (r router) HandleWriter(method, pattern string, handler http.HandlerFunc, options ...rlhttp.Option) {
	r.Add(method, pattern, echo.WrapHandler(handler), rlecho.Limit(r.client, options...))
}

func (r router) Global(options ...rlhttp.Option) { r.Pre(rlecho.Limit(r.client, options...)) }

func (r router) UserKey() rlhttp.Option {
	return rlecho.Key(func(c echo.Context) (string, error) { return c.Param("realm") + c.FormValue("user"), nil })
}

func TestLimits(t *testing.T) { routers.Test(t, newRouter) }
