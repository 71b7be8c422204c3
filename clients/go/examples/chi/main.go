// The example service with chi.
package main

import (
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
	router.Use(middleware.GetHead)
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
	service.Run(router)
}
