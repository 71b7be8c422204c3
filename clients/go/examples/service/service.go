// Package service is what the example services have in common: a listener, and the handlers of those that use net/http.
package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

// Timeout is $TIMEOUT_MS, or the client's own.
func Timeout() ratelimit.ClientOption {
	ms, _ := strconv.Atoi(os.Getenv("TIMEOUT_MS"))
	return ratelimit.WithTimeout(time.Duration(ms) * time.Millisecond)
}

// Run serves on 127.0.0.1:$PORT until SIGTERM.
func Run(handler http.Handler) {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener)
	fmt.Println("ready")

	ended, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	<-ended.Done()
	stop()
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	server.Shutdown(soon)
}

// Say answers with one line.
func Say(line string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { write(w, http.StatusOK, line) }
}

func write(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, line+"\n")
}

// Login welcomes those whose password is `right`.
func Login(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("password") != "right" {
		write(w, http.StatusUnauthorized, "wrong")
		return
	}
	write(w, http.StatusOK, "welcome")
}

// Slow waits ?ms= milliseconds, or until the client has gone.
func Slow(w http.ResponseWriter, r *http.Request) {
	Wait(r.Context(), Number(r, "ms"))
	write(w, http.StatusOK, "slow")
}

// Stream sends three lines, 100 ms apart.
func Stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for i, line := range []string{"one", "two", "three"} {
		if i > 0 && !Wait(r.Context(), 100) {
			return
		}
		io.WriteString(w, line+"\n")
		http.NewResponseController(w).Flush()
	}
}

// Costly answers with what it cost.
func Costly(w http.ResponseWriter, r *http.Request) {
	write(w, http.StatusOK, fmt.Sprintf("cost %d", Number(r, "n")))
}

// Number is a number of the query.
func Number(r *http.Request, name string) int64 {
	n, _ := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	return n
}

// Wait reports whether the time has passed; false: the client has gone.
func Wait(ctx context.Context, ms int64) bool {
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// Left answers with what the decision has left.
func Left(w http.ResponseWriter, r *http.Request) {
	line := "left unknown"
	if decision, ok := rlhttp.DecisionOf(r.Context()); ok {
		line = fmt.Sprintf("left %d of %s", decision.Remaining, decision.Of)
	}
	write(w, http.StatusOK, line)
}

// Guess is right if ?right=yes.
func Guess(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("right") != "yes" {
		write(w, http.StatusForbidden, "wrong")
		return
	}
	write(w, http.StatusOK, "right")
}

// Own has a field of its own that the limit has, too.
func Own(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-RateLimit-Limit", "99")
	write(w, http.StatusOK, "own")
}

// OfPlan is the limit of /plan.
func OfPlan() []rlhttp.Option {
	return []rlhttp.Option{rlhttp.Name("plan"), rlhttp.EveryOf(func(r *http.Request) (int64, time.Duration) {
		if r.Header.Get("X-Plan") == "gold" {
			return 3, 30 * time.Second
		}
		return 1, time.Minute
	})}
}

// OfChoice is the limit of /choose: the policy is ?policy=, and `free` is not limited.
func OfChoice() rlhttp.Option {
	return rlhttp.PolicyOf(func(r *http.Request) (string, error) {
		chosen := r.URL.Query().Get("policy")
		if chosen == "free" {
			return "", rlhttp.ErrNoLimit
		}
		return chosen, nil
	})
}

// OfGuess is the limit of /guess, which counts what is wrong.
func OfGuess() []rlhttp.Option {
	wrong := func(_ *http.Request, status int) bool { return status == http.StatusForbidden }
	return []rlhttp.Option{rlhttp.Every(2, time.Minute), rlhttp.Name("guess"), rlhttp.ChargeWhen(wrong)}
}

// OfOwn is the limit of /own, with an answer of its own.
func OfOwn() []rlhttp.Option {
	slowDown := func(w http.ResponseWriter, _ *http.Request, _ ratelimit.Decision) {
		w.Header().Set("Retry-After", "99")
		w.Header().Set("X-RateLimit-Limit", "99")
		write(w, http.StatusTeapot, "slow down")
	}
	return []rlhttp.Option{rlhttp.Policy("budget"), rlhttp.CostOf(Cost), rlhttp.Headers(rlhttp.Both), rlhttp.Respond(slowDown)}
}

// User is the user of the form and the address together.
func User() rlhttp.Option { return rlhttp.Key(rlhttp.Join(rlhttp.ByForm("user"), rlhttp.ByIP())) }

// Failed is the answer to a wrong password.
func Failed(r *http.Request, status int) bool { return status == http.StatusUnauthorized }

// IsProbe is true for health checks.
func IsProbe(r *http.Request) bool { return r.Header.Get("X-Probe") == "yes" }

// Cost is ?n=.
func Cost(r *http.Request) int64 { return Number(r, "n") }

// Two is the second limit of /two, for requests with a tenant.
func Two() rlhttp.Option {
	byTenant := rlhttp.ByHeader("X-Tenant")
	return rlhttp.And(rlhttp.Policy("tenant"), rlhttp.Key(func(r *http.Request) (string, error) {
		if r.Header.Get("X-Tenant") == "" {
			return "", rlhttp.ErrNoLimit
		}
		return byTenant(r)
	}))
}
