package ratelimit

import (
	"context"
	"sync"

	"github.com/tinylib/msgp/msgp"
)

// A Reservation is a charge of which the real size is known later. If it is neither settled nor cancelled, its units
// are given back at the end of its time limit (TTL).
type Reservation struct {
	client *Client
	token  string

	mu    sync.Mutex
	ended bool
}

// Reserve charges an estimate. The reservation is nil unless the decision is Allowed.
//
//	r, d, err := client.Reserve(ctx, "llm", tenant, 2000, ratelimit.TTL(5*time.Minute))
//	if err != nil || !d.Allowed {
//		return
//	}
//	defer r.Cancel(ctx) // does nothing once it is settled
//	...
//	r.Settle(ctx, used)
//
// Options: TTL, Deadline, RequestID, Resend, Clamp, Timeout.
func (c *Client) Reserve(ctx context.Context, policy, key string, estimate int64,
	options ...Option) (*Reservation, Decision, error) {
	const has = optDeadline | optTTL | optRequestID
	chosen, err := gather("reserve", has|optClamp, options)
	if err != nil {
		return nil, Decision{}, err
	}
	question, err := begin("reserve", 4, policy, key)
	if err != nil {
		return nil, Decision{}, err
	}
	question.body = chosen.appendMap(msgp.AppendInt64(question.body, estimate), has)
	question.repeatable = chosen.resend
	question.undo = "cancel"

	event := Event{Method: "reserve", Policy: policy, Key: key}
	_, got, err := c.decide(ctx, question, event, estimate, nil, chosen.timeout)
	switch {
	case err != nil:
		return nil, got.Decision, err
	case got.Allowed:
		return &Reservation{client: c, token: got.reservation}, got.Decision, nil
	case chosen.clamp && got.RetryAfter() == Never && 0 < got.Limit && got.Limit < estimate:
		return c.Reserve(ctx, policy, key, got.Limit, options...)
	}
	return nil, got.Decision, nil
}

// Token is what another process may settle the reservation with, through Client.Settle. It is not a secret.
func (r *Reservation) Token() string { return r.token }

// Settle reports how many units were used, fewer or more than estimated, even if ctx has ended before. The second Settle or
// Cancel of an object does nothing and returns a Decision with Ended. After an error the object may be settled again.
func (r *Reservation) Settle(ctx context.Context, used int64) (Decision, error) {
	return r.end(func() (Decision, error) { return r.client.Settle(ctx, r.token, used) })
}

// Cancel gives all units back, even if ctx has ended before.
func (r *Reservation) Cancel(ctx context.Context) (Decision, error) {
	return r.end(func() (Decision, error) { return r.client.Cancel(ctx, r.token) })
}

func (r *Reservation) end(ask func() (Decision, error)) (Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.token == "" {
		return Decision{Allowed: true, Ended: true}, nil
	}

	decision, err := ask()
	r.ended = err == nil
	return decision, err
}

// Settle ends a reservation by its token.
func (c *Client) Settle(ctx context.Context, token string, used int64, options ...Option) (Decision, error) {
	chosen, err := gather("settle", 0, options)
	if err != nil {
		return Decision{}, err
	}
	question := newCall("settle", 2)
	question.body = msgp.AppendInt64(msgp.AppendString(question.body, token), used)
	question.givesBack = true
	got, err := c.askAnswer(ctx, question, 0, chosen.timeout)
	return got.Decision, err
}

// Cancel ends a reservation of which nothing was used, by its token.
func (c *Client) Cancel(ctx context.Context, token string, options ...Option) (Decision, error) {
	chosen, err := gather("cancel", 0, options)
	if err != nil {
		return Decision{}, err
	}
	question := newCall("cancel", 1)
	question.body = msgp.AppendString(question.body, token)
	question.givesBack = true
	got, err := c.askAnswer(ctx, question, 0, chosen.timeout)
	return got.Decision, err
}
