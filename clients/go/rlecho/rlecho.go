// Package rlecho limits handlers of echo. Its options are those of rlhttp.
//
//	e.GET("/search", search, rlecho.Limit(client, rlhttp.Policy("search")))
package rlecho

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/routes"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

type contextKey struct{}

// Limit returns middleware, for a route, a group or everything.
func Limit(client *ratelimit.Client, options ...rlhttp.Option) echo.MiddlewareFunc {
	g := rlhttp.NewGate(client, append([]rlhttp.Option{rlhttp.Endpoint(endpoint)}, options...)...)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), contextKey{}, c)))
			pass, ok := g.Enter(c.Response(), c.Request())
			if !ok {
				return nil
			}

			c.SetRequest(pass.Into(c.Request()))
			if response := c.Response(); pass.Keeps() {
				response.Writer = pass.Writer(response.Writer)
				defer func() { pass.Keep(response.Header()) }() // where nothing has been written so far
			}
			status := http.StatusInternalServerError // of a panic
			defer func() { pass.Leave(status) }()
			err := next(c)
			status = statusOf(c, err)
			return err
		}
	}
}

// statusOf is what the client has got, or what echo's error handler will make of an error.
func statusOf(c echo.Context, err error) int {
	var known *echo.HTTPError
	switch {
	case err == nil || c.Response().Committed:
		return c.Response().Status
	case errors.As(err, &known):
		return known.Code
	}
	return http.StatusInternalServerError
}

// Key is rlhttp.Key for functions of echo's context, such as c.Param.
func Key(key func(echo.Context) (string, error)) rlhttp.Option {
	return rlhttp.Key(func(r *http.Request) (string, error) { return key(of(r)) })
}

// of returns the echo.Context of a request that has come to Limit.
func of(r *http.Request) echo.Context { return r.Context().Value(contextKey{}).(echo.Context) }

// endpoint is the route with its methods as they were declared: echo has a route for each of them, with the same name. What has
// no route counts as `*`, in the group that it came to.
func endpoint(r *http.Request) string {
	c := of(r)
	here := route{c.Echo(), "", r.Method, c.Path()}
	router := c.Echo().Routers()[r.Host]
	if router != nil {
		here.host = r.Host
	} else {
		router = c.Echo().Router()
	}
	if known, ok := names.Load(here); ok {
		return known.(string)
	}

	methods := methodsOf(router.Routes(), here)
	if len(methods) == 0 { // not kept: the method may be any text of a client
		return strings.TrimSpace("* " + here.host + here.pattern)
	}
	name := routes.Name(methods, here.host+here.pattern)
	names.Store(here, name)
	return name
}

type route struct {
	echo                  *echo.Echo
	host, method, pattern string
}

var names sync.Map // of routes

func methodsOf(all []*echo.Route, here route) (methods []string) {
	name := ""
	for _, one := range all {
		if one.Path == here.pattern && one.Method == here.method {
			name = one.Name
		}
	}
	for _, one := range all {
		if name != "" && one.Path == here.pattern && one.Name == name {
			methods = append(methods, one.Method)
		}
	}
	return methods
}
