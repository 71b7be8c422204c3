// Package rlecho limits handlers of echo. Its options are those of rlhttp.
//
//	e.GET("/search", search, rlecho.Limit(client, rlhttp.Policy("search")))
package rlecho

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
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

func endpoint(r *http.Request) string {
	c := of(r)
	if c.Path() == "" {
		return "*" // outside of a route
	}
	return r.Method + " " + c.Path()
}
