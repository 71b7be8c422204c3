// The example service with net/http.
package main

import (
	"net/http"
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
	service.Run(mux)
}
