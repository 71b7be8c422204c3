// The example service with net/http.
package main

import (
	"net/http"
	"strings"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/examples/service"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

func main() {
	client := ratelimit.New(service.Timeout())
	defer client.Close()
	limited := func(handler http.HandlerFunc, options ...rlhttp.Option) http.Handler {
		return rlhttp.Limit(client, options...)(handler)
	}

	mux := http.NewServeMux()
	mux.Handle("GET /ok", limited(service.Say("ok"), rlhttp.Policy("web")))
	mux.Handle("POST /login", limited(service.Login, rlhttp.Policy("login"), service.User(),
		rlhttp.OnError(ratelimit.Deny), rlhttp.ChargeWhen(service.Failed)))
	mux.Handle("GET /inline", limited(service.Say("inline"), rlhttp.Every(2, 5*time.Second)))
	mux.Handle("GET /two", limited(service.Say("two"), rlhttp.Policy("web"), service.Two()))
	mux.Handle("GET /slow", limited(service.Slow, rlhttp.Policy("slow"), rlhttp.Slot()))
	mux.Handle("GET /stream", limited(service.Stream, rlhttp.Policy("stream"), rlhttp.Slot()))
	mux.Handle("GET /cost", limited(service.Costly, rlhttp.Policy("budget"), rlhttp.CostOf(service.Cost)))
	mux.Handle("GET /skip", limited(service.Say("skip"), rlhttp.Policy("login"), rlhttp.Skip(service.IsProbe)))
	mux.Handle("GET /down", limited(service.Say("down"), rlhttp.Policy("web"), rlhttp.OnError(ratelimit.Deny)))
	mux.Handle("GET /plan", limited(service.Say("plan"), service.OfPlan()...))
	mux.Handle("GET /choose", limited(service.Say("choose"), service.OfChoice()))
	mux.Handle("GET /left", limited(service.Left, rlhttp.Policy("web")))
	mux.Handle("GET /guess", limited(service.Guess, service.OfGuess()...))
	mux.Handle("GET /own", limited(service.Own, service.OfOwn()...))
	service.Attacks(router{mux, client, ""}, client)
	service.Run(service.Hook(mux))
}

type router struct {
	*http.ServeMux
	client *ratelimit.Client
	prefix string
}

func (r router) Handle(methods []string, path string, handler http.HandlerFunc, limits ...[]rlhttp.Option) {
	limited := http.Handler(handler)
	for i := len(limits) - 1; i >= 0; i-- {
		limited = rlhttp.Limit(r.client, limits[i]...)(limited)
	}
	if len(methods) == 1 || len(methods) == 2 && methods[1] == http.MethodHead {
		path = r.Name(methods[0], r.prefix+path) // a pattern for GET is one for HEAD
	} else {
		path = r.prefix + path
	}
	r.ServeMux.Handle(path, limited)
}

// Group is a mux of its own, behind the limit.
func (r router) Group(path string, limit []rlhttp.Option, routes func(service.Router)) {
	part := router{http.NewServeMux(), r.client, r.prefix + path}
	routes(part)
	limited := http.Handler(part.ServeMux)
	if limit != nil {
		limited = rlhttp.Limit(r.client, limit...)(limited)
	}
	r.ServeMux.Handle(path+"/", limited)
}

func (r router) Forward(w http.ResponseWriter, request *http.Request, path string) {
	again := request.Clone(request.Context())
	again.URL.Path, again.URL.RawPath = path, ""
	r.ServeHTTP(w, again)
}

func (r router) Name(method, path string) string { return strings.TrimSpace(method + " " + path) }
