// The driver of the conformance suite: commands as JSON lines on standard input, answers on standard output. See
// clients/conformance/README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/service"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
	"github.com/ratelimitd/ratelimitd/clients/go/rlhttp"
)

type object = map[string]any

// A text is a JSON string, or {"base64": ...}.
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var packed struct{ Base64 []byte }
	if data[0] == '{' && json.Unmarshal(data, &packed) == nil && packed.Base64 != nil {
		*t = text(packed.Base64)
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}

// A policy is a name, or the settings of an inline policy.
type policy string

func (p *policy) UnmarshalJSON(data []byte) error {
	if data[0] == '{' {
		*p = policy(data)
		return nil
	}
	return json.Unmarshal(data, (*string)(p))
}

type command struct {
	ID                               int64
	Do, Client, As                   string
	Socket                           *string
	Policy                           policy
	Key                              text
	Cost, Units, Estimate, Actual    *int64
	AtMost                           *int64   `json:"at_most"`
	MaxWaitMS                        *int64   `json:"max_wait_ms"`
	DeadlineMS                       *int64   `json:"deadline_ms"`
	TimeoutMS                        *float64 `json:"timeout_ms"`
	RememberDenialsMS                *int64   `json:"remember_denials_ms"`
	TTLMS                            *int64   `json:"ttl_ms"`
	RequestID                        *text    `json:"request_id"`
	Resend, Cancelled                bool
	Items                            [][]json.RawMessage
	Slot, Reservation, Kind          string
	Policies                         []string
	Inline                           bool
	Call                             int64
	MS                               float64
	N, Times                         int
	Each                             []json.RawMessage
	Peer, User, Accept               *string
	Headers                          [][2]string
	TrustedProxies                   any `json:"trusted_proxies"`
	Prefix                           *int
	Header, Value, Text, Mode, Reset string
	Parts                            []string
	Decision                         *decision
	NowMS                            int64 `json:"now_ms"`
	Unavailable                      bool
	RetryAfterMS                     int64 `json:"retry_after_ms"`
	Options, Limit                   object
	Service, Option, Own             *string
	Endpoint                         string
	Env                              map[string]string

	fake *ratelimittest.Fake // what the limit of limitOf asks
}

// A decision in the form of the protocol.
type decision struct {
	Allowed       bool       `json:"allowed"`
	Limit         int64      `json:"limit"`
	Remaining     int64      `json:"remaining"`
	RetryAfterMS  int64      `json:"retry_after_ms"`
	ResetAfterMS  int64      `json:"reset_after_ms"`
	DelayMS       int64      `json:"delay_ms"`
	Granted       int64      `json:"granted"`
	BoundBy       *string    `json:"bound_by"`
	Source        string     `json:"source"`
	Reason        *string    `json:"reason"`
	PolicyVersion uint32     `json:"policy_version"`
	ShadowDenied  bool       `json:"shadow_denied"`
	Near          bool       `json:"near"`
	Of            *string    `json:"of"`
	Quota         *int64     `json:"quota"`
	WindowMS      *int64     `json:"window_ms"`
	OfResetMS     *int64     `json:"of_reset_ms"`
	Members       []decision `json:"members,omitempty"`
	Refunded      int64      `json:"refunded"`
	Charged       int64      `json:"charged"`
	Ended         bool       `json:"ended"`
}

func shown(d ratelimit.Decision) decision {
	one := decision{Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfterMS: d.RetryAfterMS,
		ResetAfterMS: d.ResetAfterMS, DelayMS: d.DelayMS, Granted: d.Granted, BoundBy: orNull(d.BoundBy),
		Source: d.Source, Reason: orNull(d.Reason), PolicyVersion: d.PolicyVersion, ShadowDenied: d.ShadowDenied,
		Near: d.Near, Refunded: d.Refunded,
		Charged: d.Charged, Ended: d.Ended, Members: toldEach(d.Members)}
	if d.Of != "" {
		one.Of, one.Quota, one.WindowMS, one.OfResetMS = &d.Of, &d.Quota, &d.WindowMS, &d.OfResetMS
	}
	return one
}

func toldEach(decisions []ratelimit.Decision) []decision {
	var each []decision
	for _, one := range decisions {
		each = append(each, shown(one))
	}
	return each
}

func (d decision) heard() ratelimit.Decision {
	one := ratelimit.Decision{Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining, RetryAfterMS: d.RetryAfterMS,
		ResetAfterMS: d.ResetAfterMS, BoundBy: value(d.BoundBy), Source: d.Source, Reason: value(d.Reason),
		ShadowDenied: d.ShadowDenied, Near: d.Near, Of: value(d.Of), Quota: value(d.Quota), WindowMS: value(d.WindowMS),
		OfResetMS: value(d.OfResetMS)}
	for _, member := range d.Members {
		one.Members = append(one.Members, member.heard())
	}
	return one
}

func orNull(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}

func value[T any](pointer *T) (v T) {
	if pointer != nil {
		v = *pointer
	}
	return v
}

// ---- The driver -----------------------------------------------------------------------------------------------

type driver struct {
	output sync.Mutex

	mu           sync.Mutex
	clients      map[string]*ratelimit.Client
	fakes        map[string]*ratelimittest.Fake
	slots        map[string]*ratelimit.Slot
	reservations map[string]*ratelimit.Reservation
	cancels      map[int64]context.CancelFunc
}

func main() {
	d := &driver{clients: map[string]*ratelimit.Client{}, fakes: map[string]*ratelimittest.Fake{},
		slots: map[string]*ratelimit.Slot{}, reservations: map[string]*ratelimit.Reservation{},
		cancels: map[int64]context.CancelFunc{}}
	d.say(object{"ready": true, "pid": os.Getpid()})

	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			break
		}
		d.begin(line)
	}
	for _, client := range d.clients {
		client.Close()
	}
}

func (d *driver) say(answer object) {
	line, err := json.Marshal(answer)
	if err != nil {
		line, _ = json.Marshal(object{"id": answer["id"], "status": "bug", "message": err.Error()})
	}
	d.output.Lock()
	defer d.output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// begin starts a command, and returns when it has reached the client: calls keep the order of the lines.
func (d *driver) begin(line []byte) {
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		d.say(object{"id": c.ID, "status": "bug", "message": err.Error()})
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	if c.Cancelled {
		cancel()
	}
	begun := &begun{Context: ctx, now: make(chan struct{})}
	d.mu.Lock()
	d.cancels[c.ID] = cancel
	d.mu.Unlock()
	go func() {
		defer begun.once.Do(func() { close(begun.now) })
		defer cancel()
		started := time.Now()
		answer := d.carryOut(begun, &c)
		answer["id"], answer["ms"] = c.ID, float64(time.Since(started).Microseconds())/1000
		d.say(answer)
	}()

	if c.Do != "block_ms" && c.Do != "threads" && c.Do != "release" {
		<-begun.now
	}
}

// A begun context reports when the client begins to wait.
type begun struct {
	context.Context
	once sync.Once
	now  chan struct{}
}

func (b *begun) Done() <-chan struct{} {
	b.once.Do(func() { close(b.now) })
	return b.Context.Done()
}

func failed(err error) object {
	var refused *ratelimit.RefusedError
	var unavailable *ratelimit.UnavailableError
	switch {
	case errors.As(err, &refused) && refused.Code == ratelimit.BadArgument:
		return object{"status": "argument", "maybe_charged": false, "message": err.Error()}
	case errors.As(err, &refused):
		return object{"status": "refused", "maybe_charged": false, "message": err.Error(), "code": refused.Code,
			"missing": refused.Missing}
	case errors.As(err, &unavailable):
		return object{"status": string(unavailable.Kind), "maybe_charged": unavailable.MaybeCharged,
			"message": err.Error(), "code": unavailable.Code}
	}
	return object{"status": "bug", "message": err.Error()}
}

func answered(err error, fields object) object {
	if err != nil {
		return failed(err)
	}
	fields["status"] = "ok"
	return fields
}

// argument: a helper found a parameter that it does not accept.
func argument(ok bool, fields object) object {
	if !ok {
		return object{"status": "argument", "maybe_charged": false, "message": "not accepted"}
	}
	return answered(nil, fields)
}

func (c *command) options() (options []ratelimit.Option) {
	add := func(number *int64, option func(int64) ratelimit.Option) {
		if number != nil {
			options = append(options, option(*number))
		}
	}
	ms := func(option func(time.Duration) ratelimit.Option) func(int64) ratelimit.Option {
		return func(n int64) ratelimit.Option { return option(time.Duration(n) * time.Millisecond) }
	}
	add(c.Cost, ratelimit.Cost)
	add(c.AtMost, ratelimit.AtMost)
	add(c.MaxWaitMS, ms(ratelimit.MaxWait))
	add(c.DeadlineMS, ms(ratelimit.Deadline))
	add(c.TTLMS, ms(ratelimit.TTL))
	if c.RequestID != nil {
		options = append(options, ratelimit.RequestID(string(*c.RequestID)))
	}
	if c.Resend {
		options = append(options, ratelimit.Resend())
	}
	if c.TimeoutMS != nil {
		options = append(options, ratelimit.Timeout(time.Duration(*c.TimeoutMS*float64(time.Millisecond))))
	}
	return options
}

func (c *command) items() (items []ratelimit.Item, err error) {
	for _, row := range c.Items {
		var name policy
		var key text
		var options []ratelimit.Option
		if err = errors.Join(json.Unmarshal(row[0], &name), json.Unmarshal(row[1], &key)); err != nil {
			return nil, err
		}
		if len(row) > 2 {
			var cost int64
			if err = json.Unmarshal(row[2], &cost); err != nil {
				return nil, err
			}
			options = append(options, ratelimit.Cost(cost))
		}
		items = append(items, ratelimit.Of(string(name), string(key), options...))
	}
	return items, nil
}

func (d *driver) carryOut(ctx context.Context, c *command) (answer object) {
	defer func() {
		bug := recover()
		if refused, ok := bug.(*ratelimit.RefusedError); ok { // by New
			answer = failed(refused)
		} else if bug != nil {
			answer = object{"status": "bug", "message": fmt.Sprint(bug)}
		}
	}()
	d.mu.Lock()
	client, fake := d.clients[c.Client], d.fakes[c.Client]
	slot, reservation, cancel := d.slots[c.Slot], d.reservations[c.Reservation], d.cancels[c.Call]
	d.mu.Unlock()
	name, key := string(c.Policy), string(c.Key)

	switch c.Do {
	case "open":
		d.open(c)
		return answered(nil, object{})
	case "fake":
		fake := ratelimittest.NewFake()
		d.mu.Lock()
		d.clients[c.Client], d.fakes[c.Client] = fake.Client(), fake
		d.mu.Unlock()
		return answered(nil, object{})
	case "close":
		if client == nil { // it was never opened
			return answered(nil, object{})
		}
		return answered(client.Close(), object{})
	case "stats":
		counts := client.Counters()
		counters := object{"checks": counts.Checks, "allowed": counts.Allowed, "denied": counts.Denied,
			"remembered":  counts.Remembered,
			"unavailable": counts.Unavailable, "refused": counts.Refused}
		return answered(nil, object{"counters": counters, "pending": counts.Pending})

	case "check":
		got, err := client.Check(ctx, name, key, c.options()...)
		return answered(err, object{"decision": shown(got)})
	case "check_all":
		items, err := c.items()
		if err != nil {
			panic(err)
		}
		got, err := client.CheckAll(ctx, items, c.options()...)
		return answered(err, object{"decision": shown(got)})
	case "check_many":
		items, err := c.items()
		if err != nil {
			panic(err)
		}
		got, err := client.CheckMany(ctx, items, c.options()...)
		return answered(err, object{"decisions": toldEach(got)})
	case "peek":
		got, err := client.Peek(ctx, name, key, c.options()...)
		return answered(err, object{"decision": shown(got)})
	case "reset":
		removed, err := client.Reset(ctx, name, key, c.options()...)
		return answered(err, object{"removed": removed})
	case "refund":
		got, err := client.Refund(ctx, name, key, value(c.Units), c.options()...)
		return answered(err, object{"decision": shown(got)})
	case "acquire":
		slot, got, err := client.Acquire(ctx, name, key, c.options()...)
		d.mu.Lock()
		d.slots[c.As] = slot
		d.mu.Unlock()
		return answered(err, object{"decision": shown(got), "slot": slot != nil})
	case "release":
		released, err := slot.Release()
		return answered(err, object{"released": released, "lost": isLost(slot)})
	case "slot_state":
		return answered(nil, object{"held": slot.Held(), "lost": isLost(slot)})
	case "reserve":
		reservation, got, err := client.Reserve(ctx, name, key, value(c.Estimate), c.options()...)
		d.mu.Lock()
		d.reservations[c.As] = reservation
		d.mu.Unlock()
		return answered(err, object{"decision": shown(got), "reservation": reservation != nil})
	case "settle":
		got, err := reservation.Settle(ctx, value(c.Actual))
		return answered(err, object{"decision": shown(got)})
	case "cancel_reservation":
		got, err := reservation.Cancel(ctx)
		return answered(err, object{"decision": shown(got)})
	case "verify":
		if c.Inline {
			c.Policies = append(c.Policies, ratelimit.Every(1, time.Second))
		}
		return answered(client.Verify(ctx, c.Policies...), object{})

	case "cancel":
		cancel()
		return answered(nil, object{})
	case "block_ms":
		d.block(c.MS)
		return answered(nil, object{})
	case "threads":
		return d.threads(ctx, c)

	case "fake_allow_all":
		fake.AllowAll()
		return answered(nil, object{})
	case "fake_deny":
		fake.Deny(name, c.RetryAfterMS)
		return answered(nil, object{})
	case "fake_unavailable":
		kind := ratelimit.KindUnreachable
		if c.Kind != "" {
			kind = ratelimit.Kind(c.Kind)
		}
		fake.Unavailable(kind)
		return answered(nil, object{})
	case "fake_calls":
		calls := [][]any{}
		for _, call := range fake.Calls() {
			switch call.Method {
			case "check", "check_all", "check_many", "reserve":
				calls = append(calls, []any{call.Method, call.Policy, call.Key, call.Units})
			case "acquire":
				calls = append(calls, []any{call.Method, call.Policy, call.Key})
			}
		}
		return answered(nil, object{"calls": calls})

	case "ip_key", "user_key":
		return c.requestKey()
	case "join_key":
		joined := ratelimit.JoinKey(c.Parts...)
		return argument(joined != "", object{"key": joined})
	case "hashed_key":
		hashed := ratelimit.HashedKey(c.Value)
		return argument(hashed != "", object{"key": hashed})
	case "parse_limit":
		settings, err := ratelimit.ParseLimit(c.Text)
		return answered(err, object{"settings": json.RawMessage(settings)})
	case "limit":
		_, err := c.limitOf(c.Options)
		return answered(err, object{})
	case "endpoint_key":
		return c.endpointKey()
	case "service_name":
		env := func(variable string) (string, bool) { name, given := c.Env[variable]; return name, given }
		name, _ := service.Of(c.Option, env, value(c.Own))
		return answered(nil, object{"service": name})
	case "headers":
		return c.answerOverHTTP()
	}
	return object{"status": "unknown"}
}

func (d *driver) open(c *command) {
	options := []ratelimit.ClientOption{ratelimit.WithOnSlotLost(func(slot *ratelimit.Slot) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for name, one := range d.slots {
			if one == slot {
				d.say(object{"event": "lost", "slot": name})
			}
		}
	})}
	if c.Socket != nil {
		options = append(options, ratelimit.WithSocket(*c.Socket))
	}
	if c.TimeoutMS != nil {
		options = append(options, ratelimit.WithTimeout(time.Duration(*c.TimeoutMS*float64(time.Millisecond))))
	}
	if c.RememberDenialsMS != nil {
		longest := time.Duration(*c.RememberDenialsMS) * time.Millisecond
		options = append(options, ratelimit.WithRememberDenials(longest))
	}
	options = append(options, ratelimit.WithLogger(slog.New(slog.NewTextHandler(logLines{d}, nil))))
	client := ratelimit.New(options...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clients[c.Client] = client
}

// logLines has each line of the client's log as an event.
type logLines struct{ *driver }

func (l logLines) Write(line []byte) (int, error) {
	l.say(object{"event": "log", "message": strings.TrimSpace(string(line))})
	return len(line), nil
}

func isLost(slot *ratelimit.Slot) bool {
	select {
	case <-slot.Lost():
		return true
	default:
		return false
	}
}

// block has the whole process stand still: no goroutine reads, and timers end meanwhile.
func (d *driver) block(ms float64) {
	script := fmt.Sprintf("read begin; kill -STOP %d; sleep %f; kill -CONT %d", os.Getpid(), ms/1000, os.Getpid())
	shell := exec.Command("sh", "-c", script)
	begin, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		panic(err)
	}
	d.say(object{"event": "blocking"})
	fmt.Fprintln(begin)
	shell.Wait()
}

func (d *driver) threads(ctx context.Context, c *command) object {
	counts, allowed := map[string]int{}, atomic.Int64{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for thread := range c.N {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := range max(c.Times, 1) {
				for _, each := range c.Each {
					names := strings.NewReplacer("{thread}", fmt.Sprint(thread), "{time}", fmt.Sprint(round))
					var call command
					if err := json.Unmarshal([]byte(names.Replace(string(each))), &call); err != nil {
						panic(err)
					}
					answer := d.carryOut(ctx, &call)
					if got, ok := answer["decision"].(decision); ok && got.Allowed {
						allowed.Add(1)
					}
					mu.Lock()
					counts[fmt.Sprint(answer["status"])]++
					mu.Unlock()
				}
			}
		}()
	}
	all.Wait()
	return answered(nil, object{"counts": counts, "allowed": allowed.Load()})
}

// requestKey is ip_key and user_key.
func (c *command) requestKey() object {
	var options []rlhttp.IPOption
	switch trusted := c.TrustedProxies.(type) {
	case float64:
		options = append(options, rlhttp.TrustHops(int(trusted)))
	case []any:
		for _, proxy := range trusted {
			options = append(options, rlhttp.Trust(fmt.Sprint(proxy)))
		}
	}
	if c.Prefix != nil {
		options = append(options, rlhttp.IPv6Prefix(*c.Prefix))
	}
	if c.Header != "" {
		options = append(options, rlhttp.FromHeader(c.Header))
	}

	request := httptest.NewRequest("GET", "/", nil)
	request.RemoteAddr = value(c.Peer)
	for _, header := range c.Headers {
		request.Header.Add(header[0], header[1])
	}
	key := rlhttp.ByIP(options...)
	if c.Do == "user_key" {
		key = rlhttp.ByUser(func(*http.Request) (string, bool) { return value(c.User), c.User != nil }, options...)
	}
	found, err := key(request)
	if err == nil && found == "" {
		return argument(false, nil)
	}
	return answered(err, object{"key": found})
}

// limitOf makes a limit of options by the names of docs/clients.md. Settings, and what is none of the options, are those
// of Inline.
func (c *command) limitOf(options object, more ...rlhttp.Option) (gate *rlhttp.Gate, err error) {
	defer func() {
		if refused, ok := recover().(*ratelimit.RefusedError); ok {
			err = refused
		}
	}()

	settings := object{}
	for name, given := range options {
		_, isFunction := given.(object)
		switch name {
		case "policy":
			if isFunction {
				more = append(more, rlhttp.PolicyOf(func(*http.Request) (string, error) { return "login", nil }))
			} else {
				more = append(more, rlhttp.Policy(given.(string)))
			}
		case "key":
			more = append(more, rlhttp.Key(func(*http.Request) (string, error) { return "k", nil }))
		case "cost":
			if isFunction {
				more = append(more, rlhttp.CostOf(func(*http.Request) int64 { return 1 }))
			} else {
				more = append(more, rlhttp.Cost(int64(given.(float64))))
			}
		case "name":
			more = append(more, rlhttp.Name(given.(string)))
		case "skip":
			more = append(more, rlhttp.Skip(func(*http.Request) bool { return false }))
		case "on_error":
			more = append(more, rlhttp.OnError(ratelimit.Deny))
		case "charge_when":
			more = append(more, rlhttp.ChargeWhen(func(*http.Request, int) bool { return true }))
		case "headers":
			more = append(more, rlhttp.Headers(rlhttp.HeaderMode(given.(string))))
		case "enabled":
			more = append(more, rlhttp.Enabled(given.(bool)))
		default:
			settings[name] = given
		}
	}

	_, ofRequest := settings["limit"].(object)
	limit, isNumber := settings["limit"].(float64)
	window, _ := settings["window"].(string)
	length, unknown := time.ParseDuration(window)
	switch {
	case ofRequest:
		more = append(more, rlhttp.EveryOf(func(*http.Request) (int64, time.Duration) { return 1, time.Second }))
	case len(settings) == 2 && isNumber && unknown == nil:
		more = append(more, rlhttp.Every(int64(limit), length))
	case len(settings) > 0:
		more = append(more, rlhttp.Inline(settings))
	}
	fake := ratelimittest.NewFake()
	c.fake = fake
	return rlhttp.NewGate(fake.Client(ratelimit.WithService(value(c.Service))), more...), nil
}

// endpointKey finds the key in what the limit asks.
func (c *command) endpointKey() object {
	key := rlhttp.Key(func(*http.Request) (string, error) { return string(c.Key), nil })
	gate, err := c.limitOf(c.Limit, rlhttp.EndpointName(c.Endpoint), key)
	if err != nil {
		return failed(err)
	}
	pass, _ := gate.Enter(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	pass.Leave(http.StatusOK)

	asked := c.fake.Calls()[0].Key
	if !utf8.ValidString(asked) {
		return answered(nil, object{"key": object{"base64": []byte(asked)}})
	}
	return answered(nil, object{"key": asked})
}

// answerOverHTTP is headers.
func (c *command) answerOverHTTP() object {
	form := rlhttp.Form{Mode: rlhttp.HeaderMode(c.Mode), Epoch: c.Reset == "epoch",
		Now: func() time.Time { return time.UnixMilli(c.NowMS) }}
	request := httptest.NewRequest("GET", "/", nil)
	if c.Accept != nil {
		request.Header.Set("Accept", *c.Accept)
	}
	written := httptest.NewRecorder()
	passes := false
	switch {
	case c.Unavailable:
		form.WriteUnavailable(written, request)
	case c.Decision.Allowed:
		passes = true
		form.AddHeaders(written.Header(), c.Decision.heard())
	default:
		form.WriteDenied(written, request, c.Decision.heard())
	}

	headers := [][2]string{}
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining",
		"X-RateLimit-Reset", "Retry-After", "Content-Type"} {
		if value := written.Header().Get(name); value != "" {
			headers = append(headers, [2]string{name, value})
		}
	}
	if passes {
		return answered(nil, object{"http_status": nil, "headers": headers, "body": nil})
	}
	return answered(nil, object{"http_status": written.Code, "headers": headers, "body": written.Body.String()})
}
