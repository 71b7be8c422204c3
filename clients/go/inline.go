package ratelimit

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// Every returns an inline policy: limit units in each window, which begins with the first charge.
//
// Equal settings share one set of counters. Give the key of one purpose a name in front, as middleware does.
func Every(limit int64, window time.Duration) string {
	return firstHit(limit, shortDuration(window))
}

// Inline returns an inline policy with the settings of ratelimitd.yaml(5). Numbers are integers, durations are text
// with a unit. It panics if a value cannot be written as JSON.
func Inline(settings map[string]any) string {
	text, err := json.Marshal(settings)
	if err != nil {
		panic("ratelimit: " + err.Error())
	}
	return string(text)
}

// ParseLimit reads a limit such as "10/5s" or "5000/day" as Every would have it.
func ParseLimit(text string) (string, error) {
	parts := shorthand.FindStringSubmatch(text)
	if parts == nil {
		return "", badArgument("%q is no limit: write it like 10/5s, 100/minute or 5000/day", text)
	}

	limit, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || limit > Unlimited {
		return "", badArgument("%q: the limit is too large", text)
	}
	count := parts[2]
	if count == "" {
		count = "1"
	}
	if _, err := strconv.ParseInt(count, 10, 64); err != nil || strings.Trim(count, "0") == "" {
		return "", badArgument("%q: the window must be at least one %s", text, parts[3])
	}
	unit := parts[3]
	if short := units[strings.TrimSuffix(unit, "s")]; short != "" {
		unit = short
	}

	return firstHit(limit, count+unit), nil
}

var (
	shorthand = regexp.MustCompile(`^([0-9]+) */ *([0-9]*) *(ms|s|m|h|d|seconds?|minutes?|hours?|days?)$`)
	units     = map[string]string{"second": "s", "minute": "m", "hour": "h", "day": "d"}
)

func firstHit(limit int64, window string) string {
	return fmt.Sprintf(`{"algorithm":"fixed_window","limit":%d,"start":"first_hit","window":%q}`, limit, window)
}

// shortDuration writes a duration in the largest unit that divides it.
func shortDuration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}} {
		if d >= unit.size && d%unit.size == 0 {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// IsInline reports whether a policy is given by settings in braces.
func IsInline(policy string) bool { return strings.HasPrefix(policy, "{") }

// appendPolicy packs a name, or the settings of an inline policy.
func appendPolicy(body []byte, policy string, nesting int) ([]byte, error) {
	if !IsInline(policy) {
		return msgp.AppendString(body, policy), nil
	}
	if packed, ok := packedPolicies.Load(policy); ok && nesting == checkNesting {
		return append(body, packed.([]byte)...), nil
	}

	decoder := json.NewDecoder(strings.NewReader(policy))
	decoder.UseNumber()
	var settings map[string]any
	if err := decoder.Decode(&settings); err != nil || decoder.More() {
		return nil, badArgument("an inline policy must be one JSON object: %v", err)
	}
	if name, given := settings["name"]; given {
		if text, ok := name.(string); !ok || !IsPolicyName(text) {
			return nil, badName(name)
		}
	}
	packed, err := appendSetting(nil, settings, nesting)
	if err != nil {
		return nil, err
	}
	if nesting == checkNesting && nPackedPolicies() < packedPoliciesMax {
		packedPolicies.Store(policy, packed)
	}
	return append(body, packed...), nil
}

// The daemon closes the connection of a message nested deeper than 8, for all callers. So a policy that would is
// refused here: around a policy there are 2 arrays in a check, 4 in a check_all.
const (
	nestingOfDaemon = 8
	checkNesting    = 2
	listNesting     = 4
)

// Most programs have a handful of inline policies. They are packed once.
var packedPolicies sync.Map

const packedPoliciesMax = 1000

func nPackedPolicies() (n int) {
	packedPolicies.Range(func(any, any) bool { n++; return true })
	return n
}

func appendSetting(body []byte, value any, nesting int) ([]byte, error) {
	var err error
	switch v := value.(type) {
	case map[string]any:
		if nesting++; nesting > nestingOfDaemon {
			return nil, badArgument("an inline policy is nested too deeply")
		}
		body = msgp.AppendMapHeader(body, uint32(len(v)))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if body, err = appendSetting(msgp.AppendString(body, name), v[name], nesting); err != nil {
				return nil, err
			}
		}
		return body, nil
	case []any:
		if nesting++; nesting > nestingOfDaemon {
			return nil, badArgument("an inline policy is nested too deeply")
		}
		body = msgp.AppendArrayHeader(body, uint32(len(v)))
		for _, member := range v {
			if body, err = appendSetting(body, member, nesting); err != nil {
				return nil, err
			}
		}
		return body, nil
	case json.Number:
		if number, err := v.Int64(); err == nil {
			return msgp.AppendInt64(body, number), nil
		}
		number, err := v.Float64()
		if err != nil || math.IsInf(number, 0) {
			return nil, badArgument("an inline policy has the number %s", v)
		}
		return msgp.AppendFloat64(body, number), nil
	case string:
		return msgp.AppendString(body, v), nil
	case bool:
		return msgp.AppendBool(body, v), nil
	}
	return msgp.AppendNil(body), nil
}

// badArgument: the client itself refuses; nothing is sent.
func badArgument(format string, values ...any) *RefusedError {
	return &RefusedError{Code: BadArgument, Message: fmt.Sprintf(format, values...)}
}
