package ratelimit

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Of ratelimitd.yaml(5): the settings of an inline policy.
var settingNames = []string{"algorithm", "anchor", "burst", "by", "compat", "count_denied", "counts", "deadline", "debt",
	"id", "idempotency_window", "key_format", "key_prefix", "lease", "limit", "limits", "local_share", "max_wait",
	"merge_back", "name", "on_change", "on_failure", "penalty", "phase", "shadow", "slot_ttl", "start", "timezone", "unlimited", "warn_at", "week_start", "window"}

var duration = regexp.MustCompile(`^([0-9]+(ms|s|m|h|d))+$`)

// checkSettings refuses an inline policy that the daemon would refuse for a slip of the pen. The daemon checks all of it.
func checkSettings(policy string) error {
	decoder := json.NewDecoder(strings.NewReader(policy))
	decoder.UseNumber()
	var settings map[string]any
	if err := decoder.Decode(&settings); err != nil || decoder.More() {
		return badArgument("an inline policy must be one JSON object: %v", err)
	}

	for name := range settings {
		if !slices.Contains(settingNames, name) {
			return badArgument("an inline policy has no setting %q; there are %s", name, strings.Join(settingNames, ", "))
		}
	}
	if name, given := settings["name"]; given {
		if text, ok := name.(string); !ok || !IsPolicyName(text) {
			return badName(name)
		}
	}
	if limit, given := settings["limit"]; given {
		number, ok := limit.(json.Number)
		if n, err := number.Int64(); !ok || err != nil || n < 0 || n > Unlimited {
			return badArgument("limit is a whole number from 0, not %v", limit)
		}
		if settings["window"] == nil && settings["algorithm"] != "concurrency" {
			return badArgument("a limit needs a window, such as 10s or 1h")
		}
	}
	if window := settings["window"]; window != nil && settings["algorithm"] != "calendar_window" {
		if text, ok := window.(string); !ok || !duration.MatchString(text) {
			return badArgument("window is a text with a unit, such as 500ms, 10s, 5m, 1h or 1d: not %v", window)
		}
	}
	return nil
}
