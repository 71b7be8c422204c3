// Package rlgin limits handlers of gin. Its options are those of rlhttp.
//
//	router.GET("/search", rlgin.Limit(client, rlhttp.Policy("search")), search)
package rlgin

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

type contextKey struct{}

// Limit returns middleware, for a route, a group or the whole router.
func Limit(client *ratelimit.Client, options ...rlhttp.Option) gin.HandlerFunc {
	g := rlhttp.NewGate(client, append([]rlhttp.Option{rlhttp.Endpoint(endpoint)}, options...)...)
	return func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), contextKey{}, c))
		pass, ok := g.Enter(c.Writer, c.Request)
		if !ok {
			c.Abort()
			return
		}

		c.Request = pass.Into(c.Request)
		status := http.StatusInternalServerError // of a panic
		defer func() { pass.Leave(status) }()
		c.Next()
		status = c.Writer.Status()
	}
}

// Key is rlhttp.Key for functions of gin's context, such as c.Param.
func Key(key func(*gin.Context) (string, error)) rlhttp.Option {
	return rlhttp.Key(func(r *http.Request) (string, error) { return key(of(r)) })
}

// of returns the gin.Context of a request that has come to Limit.
func of(r *http.Request) *gin.Context { return r.Context().Value(contextKey{}).(*gin.Context) }

func endpoint(r *http.Request) string {
	c := of(r)
	if c.FullPath() == "" {
		return "*" // outside of a route
	}
	return r.Method + " " + c.FullPath()
}
