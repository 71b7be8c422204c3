package ratelimit

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// An Event is what WithOnDecision gets at the end of a Check, CheckAll, Acquire or Reserve, and for each item of a
// CheckMany. Policy and Key of a CheckAll are those of its first item.
type Event struct {
	Method   string // as in the protocol: "check", "check_all", "acquire", ...
	Policy   string
	Key      string
	Decision Decision
	Err      error // no decision
	Took     time.Duration
}

// Counters are what a client has counted since New.
type Counters struct {
	Checks      int64          // calls that decide: Check, CheckAll, CheckMany, Acquire, Reserve
	Allowed     int64          // decisions
	Denied      int64          // decisions
	Remembered  int64          // of the denials: those that the client repeated by itself
	Unavailable map[Kind]int64 // calls without an answer
	Refused     int64          // calls
	Pending     int            // calls that wait for an answer now
}

type counters struct {
	checks, allowed, denied, remembered, refused atomic.Int64
	unavailable                                  [9]atomic.Int64 // in the order of kinds
}

// Counters returns the present counts.
func (c *Client) Counters() Counters {
	counts := Counters{
		Checks:      c.counters.checks.Load(),
		Allowed:     c.counters.allowed.Load(),
		Denied:      c.counters.denied.Load(),
		Remembered:  c.counters.remembered.Load(),
		Refused:     c.counters.refused.Load(),
		Unavailable: map[Kind]int64{},
	}
	for i, kind := range kinds {
		if n := c.counters.unavailable[i].Load(); n > 0 {
			counts.Unavailable[kind] = n
		}
	}

	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		counts.Pending = conn.waiting()
	}
	return counts
}

// report counts a decision and calls the hook.
func (c *Client) report(event Event) {
	if event.Err == nil {
		if event.Decision.Allowed {
			c.counters.allowed.Add(1)
		} else {
			c.counters.denied.Add(1)
		}
	}
	if c.settings.onDecision != nil {
		c.settings.onDecision(event)
	}
}

// count counts a failure.
func (c *Client) count(err error) {
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) {
		c.counters.refused.Add(1)
		return
	}
	c.counters.unavailable[slices.Index(kinds, unavailable.Kind)].Add(1)
}

// logPause is the time between two lines about requests without a decision.
const logPause = 10 * time.Second

// LogUndecided is for middleware: it logs why a request has no decision and what follows, at most every ten seconds.
func (c *Client) LogUndecided(failure *UnavailableError, isDenied bool) {
	now, last := time.Now().UnixNano(), c.lastLog.Load()
	if now-last < int64(logPause) || !c.lastLog.CompareAndSwap(last, now) {
		return
	}
	follows := "requests pass"
	if isDenied {
		follows = "requests are answered 503"
	}
	c.Logger().Warn("no decision from ratelimitd: "+follows, "kind", string(failure.Kind), "error", failure)
}
