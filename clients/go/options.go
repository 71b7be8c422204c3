package ratelimit

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// An Option changes one call. A method refuses options that it does not have with BAD_ARGUMENT.
type Option func(*callOptions)

type callOptions struct {
	set       optionSet
	cost      int64
	atMost    int64
	maxWait   time.Duration
	deadline  time.Duration
	ttl       time.Duration
	requestID string
	timeout   time.Duration
	clamp     bool
	resend    bool
}

type optionSet uint

const (
	optCost optionSet = 1 << iota
	optAtMost
	optMaxWait
	optDeadline
	optTTL
	optRequestID
	optClamp
)

// Those that go over the wire, with their names there.
var optionNames = []struct {
	option optionSet
	name   string
}{
	{optCost, "cost"}, {optAtMost, "at_most"}, {optMaxWait, "max_wait_ms"}, {optDeadline, "deadline_ms"},
	{optTTL, "ttl_ms"}, {optRequestID, "request_id"}, {optClamp, ""},
}

// Cost is how many units to charge; without it 1. 0 charges nothing.
func Cost(units int64) Option {
	return func(o *callOptions) { o.cost, o.set = units, o.set|optCost }
}

// AtMost replaces Cost: as many units as are available now, up to this number. See Decision.Granted.
func AtMost(units int64) Option {
	return func(o *callOptions) { o.atMost, o.set = units, o.set|optAtMost }
}

// MaxWait is the longest acceptable Decision.Delay of a policy with max_wait. 0: deny instead.
func MaxWait(longest time.Duration) Option {
	return func(o *callOptions) { o.maxWait, o.set = longest, o.set|optMaxWait }
}

// Deadline has the daemon answer within this time, with the policy's failure answer if its store does not. Make it
// shorter than the call's timeout. Without it, the policy's deadline counts.
func Deadline(deadline time.Duration) Option {
	return func(o *callOptions) { o.deadline, o.set = deadline, o.set|optDeadline }
}

// TTL is the time limit of a reservation, up to a day; without it a minute.
func TTL(ttl time.Duration) Option {
	return func(o *callOptions) { o.ttl, o.set = ttl, o.set|optTTL }
}

// RequestID names the request, in 1 to 64 bytes: the same id with the same policy and key is charged once.
func RequestID(id string) Option {
	return func(o *callOptions) { o.requestID, o.set = id, o.set|optRequestID }
}

// Resend has the client send the request again, once, if the connection was lost before the answer. The request gets a
// random RequestID, unless it has one, so it is charged once.
func Resend() Option {
	return func(o *callOptions) { o.resend = true }
}

// Clamp has Reserve ask for the whole limit where the estimate is more than the policy can ever admit. (Otherwise such
// a reservation is denied for ever.)
func Clamp() Option {
	return func(o *callOptions) { o.clamp, o.set = true, o.set|optClamp }
}

// Timeout is the time of this call, connecting included, in place of the client's. The context may end it earlier.
func Timeout(timeout time.Duration) Option {
	return func(o *callOptions) { o.timeout = timeout }
}

func (o *callOptions) maxWaitOrNil() *time.Duration {
	if o.set&optMaxWait == 0 {
		return nil
	}
	return &o.maxWait
}

func gather(method string, has optionSet, options []Option) (callOptions, error) {
	chosen := callOptions{cost: 1}
	for _, option := range options {
		option(&chosen)
	}
	if wrong := chosen.set &^ has; wrong != 0 {
		return chosen, badArgument("%s does not have this option (%s)", method, firstName(wrong))
	}
	if chosen.resend && has&optRequestID == 0 {
		return chosen, badArgument("%s does not have the option Resend", method)
	}
	if chosen.resend && chosen.set&optRequestID == 0 {
		var id [16]byte
		rand.Read(id[:])
		RequestID(hex.EncodeToString(id[:]))(&chosen)
	}
	if chosen.set&optRequestID != 0 && (chosen.requestID == "" || len(chosen.requestID) > 64) {
		return chosen, badArgument("a request id has 1 to 64 bytes")
	}
	return chosen, nil
}

func firstName(set optionSet) string {
	for _, row := range optionNames {
		if set&row.option != 0 && row.name != "" {
			return row.name
		}
	}
	return "clamp"
}

// appendMap packs the options among these as the protocol's map.
func (o *callOptions) appendMap(body []byte, among optionSet) []byte {
	n := uint32(0)
	for _, row := range optionNames {
		if o.set&among&row.option != 0 {
			n++
		}
	}
	body = msgp.AppendMapHeader(body, n)

	for _, row := range optionNames {
		if o.set&among&row.option == 0 {
			continue
		}
		body = msgp.AppendString(body, row.name)
		switch row.option {
		case optCost:
			body = msgp.AppendInt64(body, o.cost)
		case optAtMost:
			body = msgp.AppendInt64(body, o.atMost)
		case optMaxWait:
			body = msgp.AppendInt64(body, ceilMilliseconds(o.maxWait))
		case optDeadline:
			body = msgp.AppendInt64(body, ceilMilliseconds(o.deadline))
		case optTTL:
			body = msgp.AppendInt64(body, ceilMilliseconds(o.ttl))
		case optRequestID:
			body = msgp.AppendString(body, o.requestID)
		}
	}
	return body
}

func ceilMilliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
