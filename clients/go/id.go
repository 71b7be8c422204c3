package ratelimit

import (
	"encoding/json"
	"slices"
	"strings"
)

const idMax = 256

// Identified gives an inline policy an id, so that its limit may move and its counter stays. Settings that have an id keep it;
// those that do not go with one get none. It is sent to daemons that list the feature `id`.
func Identified(policy, id string) (string, error) {
	var settings map[string]any
	if err := json.Unmarshal([]byte(policy), &settings); err != nil {
		return "", badArgument("an inline policy must be one JSON object: %v", err)
	}
	if _, given := settings["id"]; given || !mayMove(settings) {
		return policy, nil
	}
	packed, err := json.Marshal(boundedID(id))
	if err != nil {
		return "", badArgument("the id %q: %v", id, err)
	}
	return `{"id":` + string(packed) + "," + strings.TrimSpace(policy[1:]), nil
}

// mayMove: the daemon refuses an id next to these.
func mayMove(settings map[string]any) bool {
	for _, name := range []string{"burst", "max_wait", "lease", "on_change", "merge_back", "debt", "candidate"} {
		if _, given := settings[name]; given {
			return false
		}
	}
	limits, _ := settings["limits"].([]any)
	isWrong := func(limit any) bool {
		one, _ := limit.(map[string]any)
		return one != nil && !mayMove(one)
	}
	isLog := settings["algorithm"] == "sliding_log"
	return len(settings) > 0 && settings["algorithm"] != "leaky_bucket" && !(isLog && settings["count_denied"] == true) &&
		!slices.ContainsFunc(limits, isWrong)
}

// boundedID is an id as the daemon takes it: 1 to 256 bytes without control bytes.
func boundedID(id string) string {
	isControl := func(r rune) bool { return r < 0x20 || r == 0x7f }
	if len(id) <= idMax && strings.IndexFunc(id, isControl) < 0 {
		return id
	}
	front := strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(id[:min(len(id), keyKept)], ""))
	return front + "#" + HashedKey(id)
}

// idOf is the setting `id` of an inline policy, or "".
func idOf(policy string) string {
	if !IsInline(policy) || !strings.Contains(policy, `"id"`) {
		return ""
	}
	var settings struct {
		ID string `json:"id"`
	}
	if json.Unmarshal([]byte(policy), &settings) != nil {
		return ""
	}
	return settings.ID
}
