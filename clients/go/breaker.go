package ratelimit

import (
	"math/rand/v2"
	"sync"
	"time"
)

// A breaker saves callers from waiting for a daemon that does not answer: after three timeouts in a row, calls fail at once for
// a second; then one probe goes through, and the others still fail until it has ended. Any answer closes the breaker.
type breaker struct {
	mu       sync.Mutex
	timeouts int       // in a row
	openTill time.Time // zero: closed
	probing  bool
}

const (
	breakerTimeouts = 3
	breakerPause    = time.Second
)

// admit reports whether a call may go out, and whether it is the probe.
func (b *breaker) admit(now time.Time) (admitted, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.openTill.IsZero() {
		return true, false
	}
	if b.probing || now.Before(b.openTill) {
		return false, false
	}
	b.probing = true
	return true, true
}

func (b *breaker) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.timeouts, b.openTill, b.probing = 0, time.Time{}, false
}

// timedOut: calls that were on their way when the breaker opened do not keep it open for longer.
func (b *breaker) timedOut(now time.Time, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.timeouts++
	if probe || (b.openTill.IsZero() && b.timeouts >= breakerTimeouts) {
		b.openTill, b.probing = now.Add(breakerPause), false
	}
}

// undecided: the call ended without an answer, but not by a timeout.
func (b *breaker) undecided(probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if probe {
		b.probing = false
	}
}

// jittered returns between half of a pause and all of it.
func jittered(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause/2+1)
}
