// The example service with chi.
package main

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/examples/service"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func main() {
	client := ratelimit.New(service.Timeout())
	defer client.Close()
	router := chi.NewRouter()
	router.Use(middleware.GetHead, service.Hook)
	limited := func(options ...rlhttp.Option) chi.Router { return router.With(rlhttp.Limit(client, options...)) }

	limited(rlhttp.Policy("web")).Get("/ok", service.Say("ok"))
	limited(rlhttp.Policy("login"), service.User(), rlhttp.OnError(ratelimit.Deny),
		rlhttp.ChargeWhen(service.Failed)).Post("/login", service.Login)
	limited(rlhttp.Every(2, 5*time.Second)).Get("/inline", service.Say("inline"))
	limited(rlhttp.Policy("web"), service.Two()).Get("/two", service.Say("two"))
	limited(rlhttp.Policy("slow"), rlhttp.Slot()).Get("/slow", service.Slow)
	limited(rlhttp.Policy("stream"), rlhttp.Slot()).Get("/stream", service.Stream)
	limited(rlhttp.Policy("budget"), rlhttp.CostOf(service.Cost)).Get("/cost", service.Costly)
	limited(rlhttp.Policy("login"), rlhttp.Skip(service.IsProbe)).Get("/skip", service.Say("skip"))
	limited(rlhttp.Policy("web"), rlhttp.OnError(ratelimit.Deny)).Get("/down", service.Say("down"))
	limited(service.OfPlan()...).Get("/plan", service.Say("plan"))
	limited(service.OfChoice()).Get("/choose", service.Say("choose"))
	limited(rlhttp.Policy("web")).Get("/left", service.Left)
	limited(service.OfGuess()...).Get("/guess", service.Guess)
	limited(service.OfOwn()...).Get("/own", service.Own)
	service.Attacks(attacked{router, client}, client)
	service.Run(router)
}

type attacked struct {
	chi.Router
	client *ratelimit.Client
}

func (a attacked) Handle(methods []string, path string, handler http.HandlerFunc, limits ...[]rlhttp.Option) {
	router := a.Router
	for _, options := range limits {
		router = router.With(rlhttp.Limit(a.client, options...))
	}
	if methods == nil {
		router.HandleFunc(path, handler)
	}
	for _, method := range methods {
		if method != http.MethodHead { // GetHead has it
			router.MethodFunc(method, path, handler)
		}
	}
	if os.Getenv("MISTAKE") == "misplaced" {
		a.Use(rlhttp.Limit(a.client, rlhttp.Policy("never"))) // behind a route: chi ends the program
	}
}

func (a attacked) Group(path string, limit []rlhttp.Option, routes func(service.Router)) {
	a.Route(path, func(part chi.Router) {
		if limit != nil {
			part.Use(rlhttp.Limit(a.client, limit...))
		}
		routes(attacked{part, a.client})
	})
}

func (a attacked) Forward(w http.ResponseWriter, r *http.Request, path string) {
	route := chi.NewRouteContext()
	route.Routes, route.RoutePath = a.Router, path
	again := r.Clone(context.WithValue(r.Context(), chi.RouteCtxKey, route))
	again.URL.Path, again.URL.RawPath = path, ""
	a.ServeHTTP(w, again)
}

// Name is without the method: chi does not report it.
func (a attacked) Name(_, path string) string { return path }
