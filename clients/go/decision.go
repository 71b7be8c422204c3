package ratelimit

import (
	"math"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// Never is what RetryAfter returns when waiting does not help.
const Never = time.Duration(-1)

// Unlimited in Limit and Remaining means that there is no limit.
const Unlimited = 1<<53 - 1

// A Decision is the daemon's answer. A denial is an answer too: look at Allowed. Fields ending in MS are whole
// milliseconds, rounded up by the daemon.
type Decision struct {
	Allowed       bool
	Limit         int64  // the capacity: the limit, or the burst of a bucket
	Remaining     int64  // units available now
	RetryAfterMS  int64  // 0 when allowed; -1: waiting does not help
	ResetAfterMS  int64  // until the whole limit is available again, without further charges
	DelayMS       int64  // allowed: wait for this time before going ahead; 0 without a max_wait
	Granted       int64  // units charged by this call
	BoundBy       string // the limit that denied, "policy/limit", if the policy has several; else ""
	Source        string // who decided: "redis", "memory", "deny_cache", "unlimited"; failures: "allow", "deny", ...
	Reason        string // of a failure answer: "down", "deadline", "overload", "store_error"; else ""
	PolicyVersion uint32 // fingerprint of the policy's settings
	Near          bool   // more than the policy's `warn_at` is used
	ShadowDenied  bool   // a shadow policy allowed it, and would have denied it if it were enforced

	// The limit that Limit and Remaining speak of. Of is "" if no limit counted (a failure answer, unlimited), or if the
	// daemon is too old to report it; then the others are 0.
	Of        string // "policy/limit", or "policy" if the limit has no name
	Quota     int64  // its `limit` setting
	WindowMS  int64  // 0 for concurrency
	OfResetMS int64  // until this limit alone is unused again

	Members []Decision // of CheckAll: what each item would have got by itself

	Refunded int64 // of Refund, Settle and Cancel: units given back
	Charged  int64 // of Settle: units charged beyond the estimate
	Ended    bool  // of Settle and Cancel: the reservation had ended before
}

// RetryAfter is when to ask again: 0 when allowed, or Never.
func (d Decision) RetryAfter() time.Duration { return fromMilliseconds(d.RetryAfterMS) }

// ResetAfter is when the whole limit is available again, without further charges.
func (d Decision) ResetAfter() time.Duration { return fromMilliseconds(d.ResetAfterMS) }

// Delay is how long to wait before going ahead.
func (d Decision) Delay() time.Duration { return fromMilliseconds(d.DelayMS) }

// fromMilliseconds cuts what is longer than a time.Duration can be, 292 years.
func fromMilliseconds(ms int64) time.Duration {
	if ms < 0 {
		return Never
	}
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// answer is a decision with what some methods add to it.
type answer struct {
	Decision
	slot        string
	reservation string
	items       []Item // of which Members will be the answers; nil: unknown
}

// readAnswer decodes a packed decision. cost is what it has granted if it has no `granted`. Fields that it does not
// know are skipped.
func readAnswer(packed []byte, cost int64, items []Item) (answer, error) {
	a := answer{items: items}
	rest, err := a.read(packed, cost)
	if err == nil && len(rest) > 0 {
		err = errWrongType
	}
	return a, err
}

func (a *answer) read(packed []byte, cost int64) (rest []byte, err error) {
	n, rest, err := msgp.ReadMapHeaderBytes(packed)
	if err != nil {
		return rest, brokenAnswer("a decision that is not a map")
	}

	decided := false
	a.Granted = -1
	for ; n > 0 && err == nil; n-- {
		var name []byte
		if kind := msgp.NextType(rest); kind != msgp.StrType && kind != msgp.BinType {
			rest, err = msgp.Skip(rest) // a name that is not text is unknown
		} else {
			name, rest, err = readText(rest)
		}
		if err != nil {
			break
		}
		if len(rest) > 0 && rest[0] == 0xc0 { // nil is the same as left out
			rest = rest[1:]
			continue
		}

		switch string(name) {
		case "allowed":
			decided = true
			a.Allowed, rest, err = msgp.ReadBoolBytes(rest)
		case "limit":
			a.Limit, rest, err = readNumber(rest, 0)
		case "remaining":
			a.Remaining, rest, err = readNumber(rest, 0)
		case "retry_after_ms":
			a.RetryAfterMS, rest, err = readNumber(rest, -1)
		case "reset_after_ms":
			a.ResetAfterMS, rest, err = readNumber(rest, 0)
		case "delay_ms":
			a.DelayMS, rest, err = readNumber(rest, 0)
		case "granted":
			a.Granted, rest, err = readNumber(rest, 0)
		case "bound_by":
			a.BoundBy, rest, err = readString(rest)
		case "source":
			a.Source, rest, err = readName(rest)
		case "reason":
			a.Reason, rest, err = readName(rest)
		case "policy_version":
			a.PolicyVersion, rest, err = msgp.ReadUint32Bytes(rest)
		case "shadow_denied":
			a.ShadowDenied, rest, err = msgp.ReadBoolBytes(rest)
		case "near":
			a.Near, rest, err = msgp.ReadBoolBytes(rest)
		case "of":
			a.Of, rest, err = readString(rest)
		case "quota":
			a.Quota, rest, err = readNumber(rest, 0)
		case "window_ms":
			a.WindowMS, rest, err = readNumber(rest, 0)
		case "of_reset_ms":
			a.OfResetMS, rest, err = readNumber(rest, 0)
		case "members":
			a.Members, rest, err = readDecisions(rest, a.items)
		case "refunded":
			a.Refunded, rest, err = readNumber(rest, 0)
		case "charged":
			a.Charged, rest, err = readNumber(rest, 0)
		case "ended":
			a.Ended, rest, err = msgp.ReadBoolBytes(rest)
		case "slot":
			a.slot, rest, err = readString(rest)
		case "reservation":
			a.reservation, rest, err = readString(rest)
		default:
			rest, err = msgp.Skip(rest)
		}
	}

	if err != nil {
		return rest, brokenAnswer("a decision with a field of another type or out of its range")
	}
	if !decided {
		return rest, brokenAnswer("a decision without `allowed`")
	}
	if a.Granted < 0 {
		a.Granted = 0
		if a.Allowed {
			a.Granted = cost
		}
	}
	return rest, nil
}

// readDecisions reads an array of decisions. items, if there are any, must be as many; they have the costs.
func readDecisions(packed []byte, items []Item) ([]Decision, []byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(packed)
	if err != nil || int(n) > len(rest) || (items != nil && int(n) != len(items)) {
		return nil, rest, brokenAnswer("not one decision for each check")
	}

	decisions := make([]Decision, n)
	for i := range decisions {
		var one answer
		cost := int64(1)
		if items != nil {
			cost = items[i].cost
		}
		if rest, err = one.read(rest, cost); err != nil {
			return nil, rest, err
		}
		decisions[i] = one.Decision
	}
	return decisions, rest, nil
}

// readNumber reads a number of the protocol: from least to 2^53 - 1.
func readNumber(packed []byte, least int64) (int64, []byte, error) {
	number, rest, err := msgp.ReadInt64Bytes(packed)
	if err == nil && (number < least || number > Unlimited) {
		err = errOutOfRange
	}
	return number, rest, err
}

// readText reads a str or bin without copying it.
func readText(packed []byte) (text, rest []byte, err error) {
	if msgp.NextType(packed) == msgp.BinType {
		return msgp.ReadBytesZC(packed)
	}
	return msgp.ReadStringZC(packed)
}

func readString(packed []byte) (string, []byte, error) {
	text, rest, err := readText(packed)
	return string(text), rest, err
}

// readName reads a text that is usually one of a few, and does not allocate for those.
func readName(packed []byte) (string, []byte, error) {
	name, rest, err := readText(packed)
	switch string(name) {
	case "redis":
		return "redis", rest, err
	case "memory":
		return "memory", rest, err
	case "deny_cache":
		return "deny_cache", rest, err
	}
	return string(name), rest, err
}

// undoOf returns the call that gives back what a late answer has granted, or nil.
func undoOf(method string, packed []byte) *call {
	late, err := readAnswer(packed, 0, nil)
	token := late.slot
	if method == "cancel" {
		token = late.reservation
	}
	if err != nil || !late.Allowed || token == "" {
		return nil
	}

	undoing := newCall(method, 1)
	undoing.body = msgp.AppendString(undoing.body, token)
	undoing.givesBack = true
	return undoing
}

// readHello reads from the answer to hello how long a request may be, and which features there are.
func readHello(packed []byte) (longest int, features []string) {
	value, _, err := msgp.ReadMapStrIntfBytes(packed, nil)
	if err != nil {
		return frameMax, nil
	}

	longest = frameMax
	switch bytes := value["max_frame"].(type) {
	case int64:
		longest = int(min(bytes, answerMax))
	case uint64:
		longest = int(min(bytes, answerMax))
	}
	listed, _ := value["features"].([]any)
	for _, one := range listed {
		if feature, ok := one.(string); ok {
			features = append(features, feature)
		}
	}
	return longest, features
}
