package ratelimit

import (
	"testing"
	"time"
)

func TestTheBreakerOpensAfterThreeTimeoutsAndProbesOnce(t *testing.T) {
	var b breaker
	now := time.Unix(0, 0)
	admits := func(admitted, probe bool) {
		t.Helper()
		if a, p := b.admit(now); a != admitted || p != probe {
			t.Fatal(a, p)
		}
	}

	b.timedOut(now, false)
	b.timedOut(now, false)
	b.answered()
	b.timedOut(now, false)
	b.timedOut(now, false)
	admits(true, false)
	b.timedOut(now, false)
	admits(false, false)

	now = now.Add(breakerPause - 1)
	b.timedOut(now, false) // one that was on its way does not prolong the pause
	admits(false, false)
	now = now.Add(1)
	admits(true, true)
	admits(false, false)
	b.undecided(false) // another call's end is not the probe's
	admits(false, false)
	b.undecided(true)
	admits(true, true)
	b.timedOut(now, true)
	admits(false, false)

	now = now.Add(breakerPause)
	admits(true, true)
	b.answered()
	admits(true, false)
}

func TestInlinePoliciesThatWouldEndTheConnectionAreRefused(t *testing.T) {
	deep := `{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}` // 6 deep
	if _, err := appendPolicy(nil, deep, checkNesting); err != nil {
		t.Error(err)
	}
	for nesting, policy := range map[int]string{listNesting: deep, checkNesting: `{"a":` + deep + `}`} {
		if _, err := appendPolicy(nil, policy, nesting); err == nil {
			t.Error(nesting, policy)
		}
	}
	for _, text := range []string{`{`, `{"a":1}{}`, `{"a":1e999}`} {
		if _, err := appendPolicy(nil, text, checkNesting); err == nil {
			t.Error(text)
		}
	}
}
