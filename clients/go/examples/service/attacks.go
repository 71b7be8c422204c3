package service

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

// A Router is a framework for the routes of clients/conformance/attacks.yaml.
type Router interface {
	// Handle adds a route for some methods, or for every one. The limits stand in front of it, each at its own place.
	Handle(methods []string, path string, handler http.HandlerFunc, limits ...[]rlhttp.Option)
	// Group is a part of the router, with a limit for all that is below it.
	Group(path string, limit []rlhttp.Option, routes func(Router))
	// Forward handles the request again, at another path.
	Forward(w http.ResponseWriter, r *http.Request, path string)
	// Name is how the framework writes a route.
	Name(method, path string) string
}

var (
	get   = []string{http.MethodGet, http.MethodHead}
	post  = []string{http.MethodPost}
	every []string
)

func limit(options ...rlhttp.Option) []rlhttp.Option { return options }

func inline(options ...rlhttp.Option) []rlhttp.Option {
	return append(limit(rlhttp.Every(2, time.Minute)), options...)
}

// Attacks adds the routes.
func Attacks(router Router, client *ratelimit.Client) {
	web, pair, never := rlhttp.Policy("web"), rlhttp.Policy("pair"), rlhttp.Policy("never")
	apiKey := rlhttp.Key(rlhttp.ByHeader("X-Api-Key"))
	byUser := rlhttp.Key(rlhttp.ByUser(user))
	at := func(path string) (string, http.HandlerFunc) {
		last := path
		for i, character := range path {
			if character == '/' {
				last = path[i+1:]
			}
		}
		return "/attack/" + path, Say(last)
	}
	add := func(methods []string, path string, limits ...[]rlhttp.Option) {
		path, handler := at(path)
		router.Handle(methods, path, handler, limits...)
	}

	add(every, "any", limit(never, rlhttp.OnError(ratelimit.Deny)))
	add(every, "preflight", limit(never, rlhttp.Skip(rlhttp.IsPreflight)))
	add(get, "key", limit(never, apiKey))
	add(get, "key-allowed", limit(never, apiKey, rlhttp.OnError(ratelimit.Allow)))
	add(get, "key-said", limit(never, apiKey))
	add(post, "json", limit(never, rlhttp.Key(userOfJSON)))
	add(get, "parts", limit(never, rlhttp.Key(rlhttp.Join(rlhttp.ByIP(), rlhttp.ByHeader("X-Api-Key")))))
	add(get, "param", limit(never, rlhttp.Key(func(r *http.Request) (string, error) { return r.URL.Query().Get("user"), nil })))
	add(get, "exempt", limit(never, rlhttp.Key(exempt)))
	add(get, "user", limit(pair, rlhttp.Key(rlhttp.ByUser(func(r *http.Request) (string, bool) {
		return r.Header.Get("X-User"), r.Header.Get("X-User") != ""
	}))))
	add(get, "user-broken", limit(never, rlhttp.Key(func(*http.Request) (string, error) { return "", errors.New("no such field") })))
	add(get, "late-hook", limit(pair, byUser))
	path, handler := at("late-guard")
	router.Handle(get, path, guarded(client, handler).ServeHTTP) // the limit is inside
	router.Handle(get, "/attack/forward", func(w http.ResponseWriter, r *http.Request) { router.Forward(w, r, "/attack/forwarded") })
	add(get, "forwarded", limit(pair))
	router.Handle(get, "/attack/redirect", func(w http.ResponseWriter, r *http.Request) { router.Forward(w, r, "/attack/redirected") },
		limit(web))
	add(get, "redirected", limit(web))
	router.Group("/attack/raw", limit(never), func(part Router) { part.Handle(get, "/x", Say("raw")) })
	router.Group("/attack/outer", limit(web), func(part Router) {
		part.Handle(get, "/twice", Say("twice"), limit(web))
		part.Handle(get, "/cost", Say("cost"), limit(web, rlhttp.Cost(5)))
		part.Handle(get, "/inner", Say("inner"), limit(pair))
		part.Handle(get, "/key", Say("key"), limit(never, apiKey))
	})
	router.Group("/attack/strict", limit(rlhttp.Policy("strict")), func(part Router) {
		part.Handle(get, "/inner", Say("inner"), limit(never))
	})
	add(get, "number", limit(web, rlhttp.ChargeUnits(func(*http.Request, int) int64 { return 5 })))

	add(get, "names/factory/a", inline())
	add(get, "names/factory/b", inline())
	router.Handle(get, "/attack/names/lambda/a", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, "a") }, inline())
	router.Handle(get, "/attack/names/lambda/b", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, "b") }, inline())
	add(get, "names/method", inline(rlhttp.EndpointName("GET method")))
	add(post, "names/method", inline(rlhttp.EndpointName("POST method")))
	add([]string{http.MethodGet, http.MethodPost}, "names/both", inline())
	module := func(part Router) { part.Handle(get, "/x", Say("x"), inline()) }
	router.Group("/attack/names/mounted-a", nil, module)
	router.Group("/attack/names/mounted-b", nil, module)
	router.Handle(get, "/attack/names/item/{id}", Say("item"), inline())
	add(get, "names/shared-a", inline(rlhttp.EndpointName("shared")))
	add(get, "names/shared-b", inline(rlhttp.EndpointName("shared")))
	add(get, "moves", limit(
		rlhttp.EveryOf(func(r *http.Request) (int64, time.Duration) { return Number(r, "limit"), time.Minute }),
		rlhttp.Key(func(*http.Request) (string, error) { return "moves", nil })))

	if os.Getenv("MISTAKE") == "equal-names" {
		add(get, "mistake/1", inline(rlhttp.EndpointName(router.Name(http.MethodGet, "/attack/mistake/2"))))
		add(get, "mistake/2", inline())
	}
}

type userKey struct{}

func user(r *http.Request) (string, bool) {
	name, known := r.Context().Value(userKey{}).(string)
	return name, known
}

// Hook finds the user, for all of the application.
func Hook(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("X-User"); name != "" {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, name))
		}
		next.ServeHTTP(w, r)
	})
}

// guarded answers 401 without a user, and has the limit behind it.
func guarded(client *ratelimit.Client, next http.Handler) http.Handler {
	limited := rlhttp.Limit(client, rlhttp.Policy("pair"), rlhttp.Key(rlhttp.ByUser(user)))(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, known := user(r); !known {
			write(w, http.StatusUnauthorized, "who?")
			return
		}
		limited.ServeHTTP(w, r)
	})
}

func exempt(r *http.Request) (string, error) {
	if r.Header.Get("X-Exempt") == "yes" {
		return "", rlhttp.ErrNoLimit
	}
	return rlhttp.ByIP()(r)
}

// userOfJSON is `user` of the body, if that is an object with a text there.
func userOfJSON(r *http.Request) (string, error) {
	var body struct {
		User any `json:"user"`
	}
	if json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<16)).Decode(&body) != nil {
		return "", nil
	}
	name, _ := body.User.(string)
	return name, nil
}
