package ratelimit

import (
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// denials are what WithRememberDenials has the client repeat by itself. The oldest one is in front.
type denials struct {
	lasts time.Duration // 0: nothing is remembered

	mu    sync.Mutex
	order list.List // of *denial
	found map[string]*list.Element
}

type denial struct {
	same     string
	asked    []Item
	decision Decision
	since    time.Time
	until    time.Time
}

const denialsMax = 1024

// sameCheck is equal for checks of equal policies, keys and costs in the same order. wait is the option MaxWait, or nil.
func (d *denials) sameCheck(method string, wait *time.Duration, items ...Item) string {
	if d.lasts == 0 {
		return ""
	}

	var err error
	same := msgp.AppendString(make([]byte, 0, 128), method)
	if wait != nil {
		same = msgp.AppendInt64(same, ceilMilliseconds(*wait))
	}
	for _, item := range items {
		if same, err = appendPolicy(same, item.policy, checkNesting); err != nil {
			return ""
		}
		same = msgp.AppendInt64(msgp.AppendString(same, boundedKey(item.key)), item.cost)
	}
	return string(same)
}

// find returns the denial of the same check, shortened by the time that has passed.
func (d *denials) find(same string) (Decision, bool) {
	if same == "" {
		return Decision{}, false
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()

	element := d.found[same]
	if element == nil {
		return Decision{}, false
	}
	one := element.Value.(*denial)
	if !now.Before(one.until) {
		d.drop(element)
		return Decision{}, false
	}
	return repeated(one.decision, now.Sub(one.since).Milliseconds()), true
}

// put remembers a denial, but not that of a store that failed.
func (d *denials) put(same string, asked []Item, decision Decision) {
	if same == "" || decision.Allowed || decision.Source == "deny" {
		return
	}
	lasts := d.lasts
	if wait := decision.RetryAfter(); wait != Never {
		lasts = min(lasts, wait)
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()

	if element := d.found[same]; element != nil {
		d.drop(element)
	}
	if d.order.Len() >= denialsMax {
		d.drop(d.order.Front())
	}
	one := &denial{same: same, asked: slices.Clone(asked), decision: decision, since: now, until: now.Add(lasts)}
	d.found[same] = d.order.PushBack(one)
}

// forget drops every denial with this policy, or that of "policy/limit", and this key.
func (d *denials) forget(policy, key string) {
	if !IsInline(policy) {
		policy, _, _ = strings.Cut(policy, "/")
	}
	d.mu.Lock()
	defer d.mu.Unlock()

	for element := d.order.Front(); element != nil; {
		next := element.Next()
		isIt := func(item Item) bool { return item.key == key && isSamePolicy(policy, item.policy) }
		if slices.ContainsFunc(element.Value.(*denial).asked, isIt) {
			d.drop(element)
		}
		element = next
	}
}

func (d *denials) drop(element *list.Element) {
	delete(d.found, element.Value.(*denial).same)
	d.order.Remove(element)
}

func repeated(denied Decision, passedMS int64) Decision {
	if !denied.Allowed {
		denied.Source = "deny_cache"
	}
	if denied.RetryAfterMS > 0 {
		denied.RetryAfterMS = max(1, denied.RetryAfterMS-passedMS)
	}
	denied.ResetAfterMS = max(0, denied.ResetAfterMS-passedMS)
	denied.OfResetMS = max(0, denied.OfResetMS-passedMS)

	denied.Members = slices.Clone(denied.Members)
	for i, member := range denied.Members {
		denied.Members[i] = repeated(member, passedMS)
	}
	return denied
}

// isSamePolicy: the first may also be the name of an inline policy. One id is one counter, whatever the numbers.
func isSamePolicy(named, policy string) bool {
	if id := idOf(named); id != "" && id == idOf(policy) {
		return true
	}
	if named == policy || !IsInline(policy) {
		return named == policy
	}
	if !IsInline(named) {
		return named == inlineName(policy)
	}

	a, errA := appendPolicy(nil, named, checkNesting)
	b, errB := appendPolicy(nil, policy, checkNesting)
	return errA == nil && errB == nil && string(a) == string(b)
}
