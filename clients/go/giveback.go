package ratelimit

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
)

// GiveBack undoes a check that was allowed, because a later limit of the same request has denied. The decision is that after the
// refund. A policy with count_denied keeps its charge, and so does one that has no units to give back. What a failure answer
// allowed was not charged. It is for middleware.
func (c *Client) GiveBack(ctx context.Context, policy, key string, charged Decision) (Decision, error) {
	uncharged := []string{"allow", "deny", "local", "unlimited", "disabled", "deny_cache"}
	if !charged.Allowed || charged.Granted == 0 || slices.Contains(uncharged, charged.Source) {
		return Decision{}, nil
	}
	if counts, err := c.countsDenied(ctx, policy, charged.PolicyVersion); counts || err != nil {
		return Decision{}, err
	}
	return c.Refund(ctx, policy, key, charged.Granted)
}

// keepers are the policies that count denials, as the daemon has listed them.
type keepers struct {
	mu    sync.Mutex
	known map[string]keeper
}

type keeper struct {
	version uint32
	counts  bool
}

// A row of `policies`, or an inline policy.
type counting struct {
	CountDenied bool       `json:"count_denied"`
	Limits      []counting `json:"limits"`
}

func (c *Client) countsDenied(ctx context.Context, policy string, version uint32) (bool, error) {
	if IsInline(policy) {
		var settings counting
		err := json.Unmarshal([]byte(policy), &settings)
		return settings.CountDenied || slices.ContainsFunc(settings.Limits, func(l counting) bool { return l.CountDenied }), err
	}

	c.keepers.mu.Lock()
	known, ok := c.keepers.known[policy]
	c.keepers.mu.Unlock()
	if ok && known.version == version {
		return known.counts, nil
	}
	configured, err := c.Policies(ctx)
	if err != nil {
		return false, err
	}
	countsDenied := func(limit map[string]any) bool { return limit["count_denied"] == true }
	known = keeper{version: version}
	for _, row := range configured {
		if row["name"] == policy {
			known.counts = slices.ContainsFunc(listOfMaps(row["limits"]), countsDenied)
		}
	}
	c.keepers.mu.Lock()
	defer c.keepers.mu.Unlock()
	if c.keepers.known == nil {
		c.keepers.known = map[string]keeper{}
	}
	c.keepers.known[policy] = known
	return known.counts, nil
}
