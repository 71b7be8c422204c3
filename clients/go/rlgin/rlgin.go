// Package rlgin limits handlers of gin. Its options are those of rlhttp.
//
//	router.GET("/search", rlgin.Limit(client, rlhttp.Policy("search")), search)
package rlgin

import (
	"context"
	"net/http"
	"reflect"
	"sync"
	"unsafe"

	"github.com/gin-gonic/gin"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/routes"
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
		if pass.Keeps() {
			own := keeper{c.Writer, pass}
			c.Writer = own
			defer own.keep()
		}
		c.Next()
		status = c.Writer.Status()
	}
}

// A keeper keeps the fields of a limit when the header is written.
type keeper struct {
	gin.ResponseWriter
	pass rlhttp.Pass
}

func (k keeper) keep() {
	if !k.Written() {
		k.pass.Keep(k.Header())
	}
}

func (k keeper) WriteHeaderNow() {
	k.keep()
	k.ResponseWriter.WriteHeaderNow()
}

func (k keeper) Write(data []byte) (int, error) {
	k.keep()
	return k.ResponseWriter.Write(data)
}

func (k keeper) WriteString(text string) (int, error) {
	k.keep()
	return k.ResponseWriter.WriteString(text)
}

func (k keeper) Flush() {
	k.keep()
	k.ResponseWriter.Flush()
}

// Unwrap is for http.ResponseController.
func (k keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// Key is rlhttp.Key for functions of gin's context, such as c.Param.
func Key(key func(*gin.Context) (string, error)) rlhttp.Option {
	return rlhttp.Key(func(r *http.Request) (string, error) { return key(of(r)) })
}

// of returns the gin.Context of a request that has come to Limit.
func of(r *http.Request) *gin.Context { return r.Context().Value(contextKey{}).(*gin.Context) }

// unrouted is the endpoint of what has no route.
const unrouted = "*"

// endpoint is the route with its methods as they were declared: gin has a route for each of them, with the same handler.
func endpoint(r *http.Request) string {
	c := of(r)
	pattern := c.FullPath()
	if pattern == "" {
		return unrouted
	}
	engine := engineOf(c)
	if engine == nil {
		return ""
	}
	known, ok := names.Load(route{engine, r.Method, pattern})
	if !ok {
		known, _ = names.LoadOrStore(route{engine, r.Method, pattern}, nameOf(engine.Routes(), r.Method, pattern))
	}
	return known.(string)
}

type route struct {
	engine          *gin.Engine
	method, pattern string
}

var names sync.Map // of routes

func nameOf(all gin.RoutesInfo, method, pattern string) string {
	var same []gin.RouteInfo
	var handler unsafe.Pointer
	for _, one := range all {
		if one.Path != pattern {
			continue
		}
		same = append(same, one)
		if one.Method == method {
			handler = identity(one.HandlerFunc)
		}
	}
	var methods []string
	for _, one := range same {
		if identity(one.HandlerFunc) == handler {
			methods = append(methods, one.Method)
		}
	}
	return routes.Name(methods, pattern)
}

// identity tells the functions of a factory apart, which have the same code.
func identity(handler gin.HandlerFunc) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&handler))
}

// engineOf reads a field that gin does not export. nil: this version has none; then a name must be written.
func engineOf(c *gin.Context) *gin.Engine {
	field := reflect.ValueOf(c).Elem().FieldByName("engine")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*gin.Engine]() {
		return nil
	}
	return (*gin.Engine)(field.UnsafePointer())
}
