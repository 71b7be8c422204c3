package ratelimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// A Slot of a concurrency limit. It is held until Release, or until the client's connection ends.
type Slot struct {
	client *Client
	conn   *connection // nil with a Transport
	id     string
	lost   chan struct{}

	mu       sync.Mutex
	released bool
}

// Acquire takes a slot of a policy with a concurrency limit. The slot is nil unless the decision is Allowed.
//
//	slot, d, err := client.Acquire(ctx, "report", tenant)
//	if err != nil || !d.Allowed {
//		return
//	}
//	defer slot.Release()
//
// Options: Deadline, RequestID, Resend, Timeout.
func (c *Client) Acquire(ctx context.Context, policy, key string, options ...Option) (*Slot, Decision, error) {
	const has = optDeadline | optRequestID
	chosen, err := gather("acquire", has, options)
	if err != nil {
		return nil, Decision{}, err
	}
	question, err := begin("acquire", 3, policy, key)
	if err != nil {
		return nil, Decision{}, err
	}
	question.body = chosen.appendMap(question.body, has)
	question.repeatable = chosen.resend
	question.undo = "release"

	event := Event{Method: "acquire", Policy: policy, Key: key}
	conn, got, err := c.decide(ctx, question, event, 1, nil, chosen.timeout)
	if err != nil || !got.Allowed {
		return nil, got.Decision, err
	}

	return c.slotOf(conn, got), got.Decision, nil
}

func (c *Client) slotOf(conn *connection, got answer) *Slot {
	slot := &Slot{client: c, conn: conn, id: got.slot, lost: make(chan struct{})}
	if conn != nil && !conn.hold(slot) {
		conn.lose(slot)
	}
	return slot
}

// Lost is closed when the slot ended before its Release, because the connection did.
func (s *Slot) Lost() <-chan struct{} { return s.lost }

// Release gives the slot back. It reports whether the daemon has freed it: false if it was lost, or released before, or
// if there was no answer in time. It does not depend on the context of Acquire. Without an answer and after an error the
// slot ends all the same, as soon as the daemon does it: the connection asks until then.
func (s *Slot) Release() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released || s.id == "" {
		return false, nil
	}
	s.released = true
	if s.conn != nil && !s.conn.letGo(s) {
		return false, nil
	}

	question := newCall("release", 1)
	question.body = msgp.AppendString(question.body, s.id)
	question.givesBack = true
	packed, err := s.send(question)
	switch {
	case errors.Is(err, errEnded): // it was lost at this moment
		return false, nil
	case isKind(err, KindTimeout): // it stays in the queue of the connection
		return false, nil
	case err != nil:
		return false, err
	}
	return readFlag(packed, "released")
}

// send bypasses the breaker and a new connection: only the connection that holds the slot can release it.
func (s *Slot) send(question *call) ([]byte, error) {
	if s.conn == nil {
		_, packed, err := s.client.ask(context.Background(), question, 0)
		return packed, err
	}
	if err := s.conn.send(question); err != nil {
		return nil, err
	}
	timer := time.NewTimer(s.client.settings.timeout)
	defer timer.Stop()
	err := s.client.await(context.Background(), s.conn, question, timer)
	return question.result, err
}

// Held reports whether the slot is held, as far as the client knows.
func (s *Slot) Held() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	select {
	case <-s.lost:
		return false
	default:
		return !s.released
	}
}
