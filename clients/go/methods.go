package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// An Item is one check of CheckAll or CheckMany. Create it with Of.
type Item struct {
	policy    string
	key       string
	cost      int64
	requestID string
	err       error
}

// Of is a check of a policy and a key. It has the options Cost and, for CheckMany, RequestID.
func Of(policy, key string, options ...Option) Item {
	chosen, err := gather("an item", optCost|optRequestID, options)
	return Item{policy: policy, key: key, cost: chosen.cost, requestID: chosen.requestID, err: err}
}

// Policy returns the policy that Of was given.
func (i Item) Policy() string { return i.policy }

// Key returns the key that Of was given.
func (i Item) Key() string { return i.key }

// Check asks whether key may do this now. If so, its cost is charged.
//
// Options: Cost, AtMost, MaxWait, Deadline, RequestID, Resend, Timeout.
func (c *Client) Check(ctx context.Context, policy, key string, options ...Option) (Decision, error) {
	const has = optCost | optAtMost | optMaxWait | optDeadline | optRequestID
	chosen, err := gather("check", has, options)
	if err != nil {
		return Decision{}, err
	}

	params := uint32(2)
	if chosen.set != 0 {
		params = 3
	}
	question, err := begin("check", params, policy, key)
	if err != nil {
		return Decision{}, err
	}
	switch chosen.set {
	case 0:
	case optCost:
		question.body = msgp.AppendInt64(question.body, chosen.cost)
	default:
		question.body = chosen.appendMap(question.body, has)
	}
	question.repeatable = chosen.resend
	if chosen.set&(optRequestID|optAtMost) == 0 {
		question.same = c.denials.sameCheck("check", chosen.maxWaitOrNil(),
			Item{policy: policy, key: key, cost: chosen.cost})
	}
	if chosen.set&optAtMost != 0 {
		chosen.cost = chosen.atMost
	}

	event := Event{Method: "check", Policy: policy, Key: key}
	_, got, err := c.decide(ctx, question, event, chosen.cost, nil, chosen.timeout)
	return got.Decision, err
}

// CheckAll makes several checks as one: all are charged, or none is. Decision.Members has what each item would have got
// by itself.
//
// Options: Deadline, RequestID, Resend, Timeout.
func (c *Client) CheckAll(ctx context.Context, items []Item, options ...Option) (Decision, error) {
	const has = optDeadline | optRequestID
	chosen, err := gather("check_all", has, options)
	if err != nil {
		return Decision{}, err
	}

	params := uint32(1)
	if chosen.set != 0 {
		params = 2
	}
	question := newCall("check_all", params)
	if question.body, err = appendItems(question.body, items, false); err != nil {
		return Decision{}, err
	}
	if chosen.set != 0 {
		question.body = chosen.appendMap(question.body, has)
	}
	question.named, question.identified = anyHas(inlineName, items), anyHas(idOf, items)
	question.repeatable = chosen.resend
	if chosen.set&optRequestID == 0 {
		question.same = c.denials.sameCheck("check_all", nil, items...)
	}

	event := Event{Method: "check_all"}
	total := int64(0)
	for _, item := range items {
		total += item.cost
	}
	if len(items) > 0 {
		event.Policy, event.Key = items[0].policy, items[0].key
	}
	_, got, err := c.decide(ctx, question, event, total, items, chosen.timeout)
	return got.Decision, err
}

// CheckMany makes several independent checks in one request. The decisions are in the order of the items. An item that
// is wrong refuses all of them, before anything is charged.
//
// Option: Timeout.
func (c *Client) CheckMany(ctx context.Context, items []Item, options ...Option) ([]Decision, error) {
	chosen, err := gather("check_many", 0, options)
	if err != nil {
		return nil, err
	}
	if len(items) > callsMax {
		return nil, badArgument("a list has at most %d items", callsMax)
	}
	question := newCall("check_many", 1)
	if question.body, err = appendItems(question.body, items, true); err != nil {
		return nil, err
	}
	question.named, question.identified = anyHas(inlineName, items), anyHas(idOf, items)
	if !c.settings.enabled {
		return slices.Repeat([]Decision{disabled(1)}, len(items)), nil
	}

	c.counters.checks.Add(1)
	started := time.Now()
	_, packed, err := c.ask(ctx, question, chosen.timeout)
	var decisions []Decision
	if err == nil {
		if decisions, _, err = readDecisions(packed, items); err != nil {
			c.count(err)
		}
	}
	for i, item := range items {
		event := Event{Method: "check_many", Policy: item.policy, Key: item.key, Err: err, Took: time.Since(started)}
		if err == nil {
			putNames(&decisions[i], item.policy)
			event.Decision = decisions[i]
		}
		c.report(event)
	}

	return decisions, err
}

// Peek returns the decision that a check would get now; nothing is charged. Without the option Cost it is that of a
// check of cost 0: Remaining is the present number.
//
// Options: Cost, Timeout.
func (c *Client) Peek(ctx context.Context, policy, key string, options ...Option) (Decision, error) {
	chosen, err := gather("peek", optCost, options)
	if err != nil {
		return Decision{}, err
	}
	if chosen.set == 0 {
		chosen.cost = 0
	}
	question, err := begin("peek", 3, policy, key)
	if err != nil {
		return Decision{}, err
	}
	question.body = msgp.AppendInt64(question.body, chosen.cost)

	got, err := c.askAnswer(ctx, question, chosen.cost, chosen.timeout)
	putNames(&got.Decision, policy)
	return got.Decision, err
}

// An Explanation is a decision with its reasons, for people and tools. The maps are those of the protocol.
type Explanation struct {
	Decision
	Policy    string
	Override  string // the key, pattern or network of the override that counts for this key, or ""
	Why       string // the decision in words
	Limits    []map[string]any
	StoreKeys []string
	State     []map[string]any
	Candidate map[string]any // nil if the policy has none, or the candidate did not decide
}

// Explain explains the answer that a check would get now. Nothing is charged.
//
// Options: Cost, Timeout.
func (c *Client) Explain(ctx context.Context, policy, key string, options ...Option) (Explanation, error) {
	chosen, err := gather("explain", optCost, options)
	if err != nil {
		return Explanation{}, err
	}
	question, err := begin("explain", 3, policy, key)
	if err != nil {
		return Explanation{}, err
	}
	question.body = msgp.AppendInt64(question.body, chosen.cost)

	_, packed, err := c.ask(ctx, question, chosen.timeout)
	if err != nil {
		return Explanation{}, err
	}
	got, err := readAnswer(packed, chosen.cost, nil)
	if err != nil {
		return Explanation{}, err
	}
	fields, _, err := msgp.ReadMapStrIntfBytes(packed, nil)
	if err != nil {
		return Explanation{}, brokenAnswer("%v", err)
	}

	text := func(name string) string { value, _ := fields[name].(string); return value }
	candidate, _ := fields["candidate"].(map[string]any)
	explanation := Explanation{Decision: got.Decision, Policy: text("policy"), Override: text("override"),
		Why: text("why"), Limits: listOfMaps(fields["limits"]), State: listOfMaps(fields["state"]),
		Candidate: candidate}
	keys, _ := fields["store_keys"].([]any)
	for _, key := range keys {
		explanation.StoreKeys = append(explanation.StoreKeys, fmt.Sprintf("%s", key))
	}
	return explanation, nil
}

// Reset forgets what the key has used under the policy, and reports whether there was anything to forget.
// "policy/limit" instead of the policy: only the counter of that limit, for all keys that share it.
//
// Option: Timeout.
func (c *Client) Reset(ctx context.Context, policy, key string, options ...Option) (bool, error) {
	chosen, err := gather("reset", 0, options)
	if err != nil {
		return false, err
	}
	question, err := begin("reset", 2, policy, key)
	if err != nil {
		return false, err
	}
	defer c.denials.forget(policy, key)
	_, packed, err := c.ask(ctx, question, chosen.timeout)
	if err != nil {
		return false, err
	}
	return readFlag(packed, "removed")
}

// Refund gives back units that the key was charged and has not used: Decision.Refunded of them, never more than were
// charged. "policy/limit" instead of the policy: to that limit only.
//
// Options: Deadline, RequestID, Resend, Timeout.
func (c *Client) Refund(ctx context.Context, policy, key string, units int64, options ...Option) (Decision, error) {
	const has = optDeadline | optRequestID
	chosen, err := gather("refund", has, options)
	if err != nil {
		return Decision{}, err
	}
	question, err := begin("refund", 4, policy, key)
	if err != nil {
		return Decision{}, err
	}
	defer c.denials.forget(policy, key)
	question.body = chosen.appendMap(msgp.AppendInt64(question.body, units), has)
	question.repeatable = chosen.resend

	got, err := c.askAnswer(ctx, question, 0, chosen.timeout)
	putNames(&got.Decision, policy)
	return got.Decision, err
}

// Policies lists the configured policies, as the protocol's method `policies` does.
func (c *Client) Policies(ctx context.Context) ([]map[string]any, error) {
	value, err := c.Call(ctx, "policies")
	return listOfMaps(value), err
}

// Stats returns the daemon's counters and gauges. The client's own are in Counters.
func (c *Client) Stats(ctx context.Context) (map[string]int64, error) {
	value, err := c.Call(ctx, "stats")
	if err != nil {
		return nil, err
	}

	fields, _ := value.(map[string]any)
	stats := make(map[string]int64, len(fields))
	for name, field := range fields {
		switch number := field.(type) {
		case int64:
			stats[name] = number
		case uint64:
			stats[name] = int64(number)
		}
	}
	return stats, nil
}

// Ping reports whether a daemon answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Call(ctx, "ping")
	return err
}

// Call calls any method of the protocol, with parameters of Go's basic types, slices and maps.
func (c *Client) Call(ctx context.Context, method string, params ...any) (any, error) {
	question := newCall(method, uint32(len(params)))
	var err error
	for _, param := range params {
		if question.body, err = msgp.AppendIntf(question.body, param); err != nil {
			return nil, badArgument("%v", err)
		}
	}

	_, packed, err := c.ask(ctx, question, 0)
	if err != nil {
		return nil, err
	}
	value, _, err := msgp.ReadIntfBytes(packed)
	if err != nil {
		return nil, brokenAnswer("%v", err)
	}
	return value, nil
}

// Expect adds these policies, named or inline, to those that Verify asks about. Middleware calls it for its limits.
func (c *Client) Expect(policies ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for _, policy := range policies {
		if !slices.Contains(c.expected, policy) {
			c.expected = append(c.expected, policy)
		}
	}
}

// Verify asks the daemon whether the given policies, and those that Expect was given, are there and permitted. Call it
// when the program starts, after the middleware was set up: a mistyped name is a *RefusedError with all Missing ones.
func (c *Client) Verify(ctx context.Context, policies ...string) error {
	if !c.settings.enabled {
		return nil
	}
	c.mu.Lock()
	expected := append(slices.Clone(c.expected), policies...)
	c.mu.Unlock()

	configured, err := c.Policies(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, policy := range expected {
		if IsInline(policy) {
			if _, err := c.Peek(ctx, policy, "verify"); err != nil && !hasCode(err, "UNSUPPORTED") {
				return explained(err)
			}
			continue
		}
		named := func(row map[string]any) bool {
			return row["name"] == policy || row["name"] == "*" // as a fake has it
		}
		if !slices.ContainsFunc(configured, named) && !slices.Contains(missing, policy) {
			missing = append(missing, policy)
		}
	}

	c.warnOfCountDenied(configured, expected)
	if len(missing) > 0 {
		return &RefusedError{Code: "UNKNOWN_POLICY", Missing: missing,
			Message: "the daemon's configuration has no " + strings.Join(missing, ", ")}
	}
	return nil
}

// warnOfCountDenied: what is answered from memory is not counted by the daemon.
func (c *Client) warnOfCountDenied(configured []map[string]any, expected []string) {
	if c.settings.remember == 0 {
		return
	}

	var counting []string
	for _, row := range configured {
		countsDenied := func(limit map[string]any) bool { return limit["count_denied"] == true }
		name, _ := row["name"].(string)
		if slices.Contains(expected, name) && slices.ContainsFunc(listOfMaps(row["limits"]), countsDenied) {
			counting = append(counting, name)
		}
	}
	if len(counting) > 0 {
		c.Logger().Warn("remembered denials are not counted by policies with count_denied",
			"policies", strings.Join(counting, ", "))
	}
}

// explained adds the way out to a NOT_PERMITTED.
func explained(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Code == "NOT_PERMITTED" {
		refused.Message += " (limits written in the program need `inline: {allow: true}` in the daemon's configuration)"
	}
	return err
}

func hasCode(err error, code string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == code
}

// begin packs a request's policy and key.
func begin(method string, params uint32, policy, key string) (*call, error) {
	question := newCall(method, params)
	body, err := appendPolicy(question.body, policy, checkNesting)
	if err != nil {
		return nil, err
	}
	question.body = msgp.AppendString(body, boundedKey(key))
	question.named, question.identified = inlineName(policy) != "", idOf(policy) != ""
	return question, nil
}

// appendItems packs the list of check_all or check_many.
func appendItems(body []byte, items []Item, many bool) ([]byte, error) {
	var err error
	body = msgp.AppendArrayHeader(body, uint32(len(items)))
	for i, item := range items {
		if item.err != nil {
			return nil, item.err
		}
		if item.requestID != "" && !many {
			return nil, badArgument("item %d of check_all: the request id names the whole request, not an item", i)
		}

		body = msgp.AppendArrayHeader(body, 3)
		if body, err = appendPolicy(body, item.policy, listNesting); err != nil {
			return nil, err
		}
		body = msgp.AppendString(body, boundedKey(item.key))
		if item.requestID == "" {
			body = msgp.AppendInt64(body, item.cost)
		} else {
			member := callOptions{set: optCost | optRequestID, cost: item.cost, requestID: item.requestID}
			body = member.appendMap(body, member.set)
		}
	}
	return body, nil
}

func anyHas(setting func(policy string) string, items []Item) bool {
	return slices.ContainsFunc(items, func(item Item) bool { return setting(item.policy) != "" })
}

// decide asks for a decision, and counts and reports it.
func (c *Client) decide(ctx context.Context, question *call, event Event, cost int64, items []Item,
	timeout time.Duration) (*connection, answer, error) {
	if !c.settings.enabled {
		return nil, answer{Decision: disabled(cost)}, nil
	}

	c.counters.checks.Add(1)
	started := time.Now()
	if denied, ok := c.denials.find(question.same); ok {
		c.counters.remembered.Add(1)
		event.Decision, event.Took = denied, time.Since(started)
		c.report(event)
		return nil, answer{Decision: denied}, nil
	}

	conn, packed, err := c.ask(ctx, question, timeout)
	var got answer
	if err == nil {
		got, err = readAnswer(packed, cost, items)
		nameless := event.Method == "acquire" && got.slot == "" || event.Method == "reserve" && got.reservation == ""
		if err == nil && got.Allowed && nameless {
			err = brokenAnswer("an allowed %s without its name", event.Method)
		}
		if err != nil {
			c.count(err)
		}
	}
	if items == nil {
		putNames(&got.Decision, event.Policy)
		items = []Item{{policy: event.Policy, key: event.Key}}
	} else if question.named {
		policies := make([]string, len(items))
		for i, item := range items {
			policies[i] = item.policy
		}
		putNames(&got.Decision, policies...)
	}
	event.Decision, event.Err, event.Took = got.Decision, err, time.Since(started)
	reported := false
	defer func() {
		if !reported && err == nil && got.Allowed { // the hook panics
			c.giveBack(question.undo, conn, got)
		}
	}()
	c.report(event)
	reported = true

	if err != nil {
		return conn, answer{}, err
	}
	c.denials.put(question.same, items, got.Decision)
	return conn, got, nil
}

// giveBack undoes an acquire or a reserve that no caller gets.
func (c *Client) giveBack(undo string, conn *connection, got answer) {
	switch undo {
	case "release":
		c.slotOf(conn, got).Release()
	case "cancel":
		c.Cancel(context.Background(), got.reservation)
	}
}

// askAnswer asks for a decision that is not a check.
func (c *Client) askAnswer(ctx context.Context, question *call, cost int64, timeout time.Duration) (answer, error) {
	_, packed, err := c.ask(ctx, question, timeout)
	if err != nil {
		return answer{}, err
	}
	got, err := readAnswer(packed, cost, nil)
	if err != nil {
		c.count(err)
		return answer{}, err
	}
	return got, nil
}

// disabled is the answer of a client that is switched off.
func disabled(cost int64) Decision {
	return Decision{Allowed: true, Limit: Unlimited, Remaining: Unlimited, Granted: cost, Source: "disabled"}
}

func readFlag(packed []byte, name string) (bool, error) {
	fields, _, err := msgp.ReadMapStrIntfBytes(packed, nil)
	flag, ok := fields[name].(bool)
	if err != nil || !ok {
		return false, brokenAnswer("an answer without `%s`", name)
	}
	return flag, nil
}

func listOfMaps(value any) []map[string]any {
	list, _ := value.([]any)
	rows := make([]map[string]any, 0, len(list))
	for _, member := range list {
		if row, ok := member.(map[string]any); ok {
			rows = append(rows, row)
		}
	}
	return rows
}
