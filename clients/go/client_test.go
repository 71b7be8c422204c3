package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const configuration = `
policies:
  few: {algorithm: fixed_window, limit: 3, window: 1m, start: first_hit}
  two:
    limits:
    - {name: second, algorithm: fixed_window, limit: 2, window: 1s}
    - {name: day, algorithm: fixed_window, limit: 5, window: 1d}
  one: {algorithm: concurrency, limit: 1}
  llm: {algorithm: token_bucket, limit: 100, window: 1m}
  free: {unlimited: true}
inline: {allow: true}
`

var background = context.Background()

func must[T any](t testing.TB) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

var decided = must[ratelimit.Decision]

func TestCheckAnswersADenialAsAValue(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()

	for left := int64(2); left >= 0; left-- {
		d := decided(t)(client.Check(background, "few", "alice"))
		if !d.Allowed || d.Remaining != left || d.Granted != 1 || d.Source != "memory" || d.Limit != 3 {
			t.Fatalf("%+v", d)
		}
	}
	d := decided(t)(client.Check(background, "few", "alice"))
	if d.Allowed || d.RetryAfter() != time.Minute || d.Granted != 0 {
		t.Fatalf("%+v", d)
	}

	daemon.Advance(time.Minute)
	if d := decided(t)(client.Check(background, "few", "alice", ratelimit.Cost(3))); !d.Allowed || d.Granted != 3 {
		t.Fatalf("%+v", d)
	}
}

func TestOptionsOfACheckReachTheDaemon(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	if d := decided(t)(client.Check(background, "few", "k", ratelimit.AtMost(10))); d.Granted != 3 {
		t.Fatalf("%+v", d)
	}
	if d := decided(t)(client.Check(background, "few", "k", ratelimit.Cost(0))); !d.Allowed || d.Remaining != 0 {
		t.Fatalf("%+v", d)
	}
	for range 2 {
		d := decided(t)(client.Check(background, "few", "again", ratelimit.RequestID("id"), ratelimit.Cost(2)))
		if d.Remaining != 1 {
			t.Fatalf("%+v", d)
		}
	}
	d := decided(t)(client.Check(background, "few", "j", ratelimit.Deadline(time.Second), ratelimit.MaxWait(0)))
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	d = decided(t)(client.Check(background, "few", "again", ratelimit.Cost(4)))
	if d.RetryAfter() != ratelimit.Never {
		t.Fatalf("%+v", d)
	}
}

func TestARefusalIsAnErrorOfItsOwn(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	check := func(policy, key string, options ...ratelimit.Option) func() error {
		return func() error { _, err := client.Check(background, policy, key, options...); return err }
	}
	wrong := ratelimit.Inline(map[string]any{"algorithm": "fixed_window", "limit": 1, "window": "x"})

	for want, call := range map[string]func() error{
		"UNKNOWN_POLICY":      check("nosuch", "k"),
		"BAD_KEY":             check("few", ""),
		"BAD_COST":            check("few", "k", ratelimit.Cost(-1)),
		"UNSUPPORTED":         check("one", "k"),
		ratelimit.BadArgument: check("few", "k", ratelimit.TTL(1)),
		"BAD_REQUEST":         check(wrong, "k"),
	} {
		var refused *ratelimit.RefusedError
		if err := call(); !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("%s: %v", want, err)
		}
	}
	if refused := client.Counters().Refused; refused != 5 {
		t.Error(refused)
	}
}

func TestCheckAllIsAllOrNothing(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	items := []ratelimit.Item{ratelimit.Of("few", "a", ratelimit.Cost(2)), ratelimit.Of("two", "b")}
	d := decided(t)(client.CheckAll(background, items))
	if !d.Allowed || d.Granted != 3 || len(d.Members) != 2 || d.Members[0].Granted != 2 || d.Members[1].Granted != 1 {
		t.Fatalf("%+v", d)
	}
	d = decided(t)(client.CheckAll(background, items))
	if d.Allowed || d.BoundBy != "few" || d.Granted != 0 || d.Members[0].Allowed || !d.Members[1].Allowed {
		t.Fatalf("%+v", d)
	}
	if d := decided(t)(client.Peek(background, "two", "b")); d.Remaining != 1 {
		t.Fatalf("the denied request has charged: %+v", d)
	}
}

func TestCheckManyDecidesEachItem(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	few, two := ratelimit.Of("few", "a", ratelimit.Cost(3)), ratelimit.Of("two", "a")
	decisions := must[[]ratelimit.Decision](t)(client.CheckMany(background, []ratelimit.Item{few, few, two}))
	allowed := []bool{}
	for _, d := range decisions {
		allowed = append(allowed, d.Allowed)
	}
	if !slices.Equal(allowed, []bool{true, false, true}) || decisions[0].Granted != 3 {
		t.Fatalf("%+v", decisions)
	}
	if decisions := must[[]ratelimit.Decision](t)(client.CheckMany(background, nil)); len(decisions) != 0 {
		t.Fatalf("%+v", decisions)
	}
}

func TestALongListIsRefusedBeforeItEndsTheConnection(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	items := make([]ratelimit.Item, 10000)
	for i := range items {
		items[i] = ratelimit.Of("few", fmt.Sprint("key", i))
	}
	var refused *ratelimit.RefusedError
	if _, err := client.CheckMany(background, items); !errors.As(err, &refused) || refused.Code != "TOO_LARGE" {
		t.Fatal(err)
	}
	decisions, err := client.CheckMany(background, items[:2000], ratelimit.Timeout(5*time.Second))
	if err != nil || len(decisions) != 2000 {
		t.Fatal(len(decisions), err)
	}
}

func TestRefundResetPeekExplain(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	decided(t)(client.Check(background, "few", "k", ratelimit.Cost(3)))
	if d := decided(t)(client.Refund(background, "few", "k", 2)); d.Refunded != 2 || d.Remaining != 2 {
		t.Fatalf("%+v", d)
	}
	e := must[ratelimit.Explanation](t)(client.Explain(background, "few", "k"))
	if !e.Allowed || e.Policy != "few" || e.Why == "" ||
		len(e.Limits) != 1 || len(e.StoreKeys) != 1 || len(e.State) != 1 {
		t.Fatalf("%+v", e)
	}
	if removed := must[bool](t)(client.Reset(background, "few", "k")); !removed {
		t.Fatal("there was something to forget")
	}
	if removed := must[bool](t)(client.Reset(background, "few", "k")); removed {
		t.Fatal("there was nothing to forget")
	}
	d := decided(t)(client.Peek(background, "few", "k", ratelimit.Cost(4)))
	if d.Allowed || d.RetryAfter() != ratelimit.Never {
		t.Fatalf("%+v", d)
	}
}

func TestInlinePoliciesAreCountedBySettings(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	for range 2 {
		if d := decided(t)(client.Check(background, ratelimit.Every(2, 5*time.Second), "k")); !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	short, err := ratelimit.ParseLimit("2/5s")
	if err != nil || short != ratelimit.Every(2, 5*time.Second) {
		t.Fatal(short, err)
	}
	if d := decided(t)(client.Check(background, short, "k")); d.Allowed {
		t.Fatalf("%+v", d)
	}
}

func TestASlotIsHeldUntilItsRelease(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	slot, d, err := client.Acquire(background, "one", "k")
	if err != nil || !d.Allowed || slot == nil {
		t.Fatal(slot, d, err)
	}
	if none, d, err := client.Acquire(background, "one", "k"); err != nil || d.Allowed || none != nil {
		t.Fatal(none, d, err)
	}
	if released := must[bool](t)(slot.Release()); !released {
		t.Fatal("it was held")
	}
	if released := must[bool](t)(slot.Release()); released {
		t.Fatal("it was released before")
	}
	if slot, d, err := client.Acquire(background, "one", "k"); err != nil || !d.Allowed {
		t.Fatal(slot, d, err)
	}
}

func TestASlotTellsThatItWasLost(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	reported := make(chan *ratelimit.Slot, 1)
	client := daemon.Client(ratelimit.WithOnSlotLost(func(slot *ratelimit.Slot) { reported <- slot }))

	slot, _, err := client.Acquire(background, "one", "k")
	if err != nil {
		t.Fatal(err)
	}
	daemon.Kill()
	<-slot.Lost()
	if <-reported != slot {
		t.Fatal("another slot")
	}
	if released, err := slot.Release(); released || err != nil {
		t.Fatal(released, err)
	}
}

func TestALateYesIsUndone(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()
	if err := client.Ping(background); err != nil {
		t.Fatal(err)
	}

	daemon.Pause()
	_, _, errAcquire := client.Acquire(background, "one", "k", ratelimit.Timeout(250*time.Millisecond))
	_, _, errReserve := client.Reserve(background, "llm", "k", 60, ratelimit.Timeout(250*time.Millisecond))
	daemon.Resume()
	for _, err := range []error{errAcquire, errReserve} {
		var unavailable *ratelimit.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Kind != ratelimit.KindTimeout || !unavailable.MaybeCharged ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}

	other := daemon.Client()
	for {
		stats := must[map[string]int64](t)(other.Stats(background))
		if stats["slots_acquired"] == 1 && stats["slots"] == 0 && stats["reservations_settled"] == 1 {
			break
		}
	}
	if d := decided(t)(other.Peek(background, "llm", "k")); d.Remaining != 100 {
		t.Fatalf("%+v", d)
	}
}

func TestAReservationIsSettledOnce(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()

	r, d, err := client.Reserve(background, "llm", "k", 60, ratelimit.TTL(5*time.Minute))
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	if d := decided(t)(r.Settle(background, 10)); d.Refunded != 50 || d.Ended {
		t.Fatalf("%+v", d)
	}
	if d := decided(t)(r.Cancel(background)); !d.Ended {
		t.Fatalf("%+v", d)
	}
	r, d, err = client.Reserve(background, "llm", "k", 5000)
	if r != nil || err != nil || d.Allowed || d.RetryAfter() != ratelimit.Never {
		t.Fatal(r, d, err)
	}
	r, d, err = client.Reserve(background, "llm", "other", 5000, ratelimit.Clamp())
	if r == nil || err != nil || d.Granted != 100 {
		t.Fatal(r, d, err)
	}
}

func TestWhatWasUsedIsReportedAlsoInAContextThatHasEnded(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	ctx, cancel := context.WithCancel(background)
	settled, _, errSettled := client.Reserve(ctx, "llm", "k", 60)
	cancelled, _, errCancelled := client.Reserve(ctx, "llm", "k", 30)
	if errSettled != nil || errCancelled != nil {
		t.Fatal(errSettled, errCancelled)
	}
	cancel()

	if d := decided(t)(settled.Settle(ctx, 10)); d.Refunded != 50 || d.Ended {
		t.Fatalf("%+v", d)
	}
	if d := decided(t)(cancelled.Cancel(ctx)); d.Refunded != 30 || d.Remaining != 90 {
		t.Fatalf("%+v", d)
	}
}

func TestCancellingAbandonsTheCall(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()
	if err := client.Ping(background); err != nil {
		t.Fatal(err)
	}
	daemon.Pause()
	defer daemon.Resume()

	ctx, cancel := context.WithCancel(background)
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err := client.Check(ctx, "few", "k", ratelimit.Timeout(time.Minute))
	var unavailable *ratelimit.UnavailableError
	if !errors.As(err, &unavailable) || unavailable.Kind != ratelimit.KindCancelled ||
		!errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err = client.Check(ctx, "few", "k"); !errors.As(err, &unavailable) || unavailable.MaybeCharged {
		t.Fatal("it was not sent: ", err)
	}
	if pending := client.Counters().Pending; pending != 0 {
		t.Fatal(pending)
	}
}

func TestWithoutADaemonCallsFailAtOnceAndSayThatNothingWasCharged(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client(ratelimit.WithTimeout(time.Minute))
	daemon.Stop()

	for range 3 {
		_, err := client.Check(background, "few", "k")
		var unavailable *ratelimit.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Kind != ratelimit.KindUnreachable || unavailable.MaybeCharged {
			t.Fatal(err)
		}
	}
	if n := client.Counters().Unavailable[ratelimit.KindUnreachable]; n != 3 {
		t.Fatal(n)
	}

	daemon.Restart()
	for {
		if d, err := client.Check(background, "few", "k"); err == nil {
			if !d.Allowed {
				t.Fatal(d)
			}
			break
		}
		time.Sleep(time.Millisecond) // its back-off is at most 250 ms
	}
}

func TestThirtyTwoGoroutinesShareOneConnection(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client(ratelimit.WithTimeout(time.Minute))

	var wait sync.WaitGroup
	for range 32 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 100 {
				if _, err := client.Check(background, "free", "k"); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wait.Wait()
	stats := must[map[string]int64](t)(client.Stats(background))
	if stats["checks"] != 3200 || stats["connections"] != 2 {
		t.Fatal(stats) // the other connection is the test's own
	}
}

func TestACloseEndsWhatWaits(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client()
	if err := client.Ping(background); err != nil {
		t.Fatal(err)
	}
	daemon.Pause()
	defer daemon.Resume()

	ended := make(chan error)
	go func() {
		_, err := client.Check(background, "few", "k", ratelimit.Timeout(time.Minute))
		ended <- err
	}()
	for client.Counters().Pending == 0 {
		time.Sleep(time.Millisecond)
	}
	client.Close()
	if err := <-ended; !errors.Is(err, ratelimit.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := client.Check(background, "few", "k"); !errors.Is(err, ratelimit.ErrClosed) {
		t.Fatal(err)
	}
}

func TestVerifyNamesEveryMissingPolicy(t *testing.T) {
	client := ratelimittest.Start(t, configuration).Client()
	client.Expect("few", "fwe", ratelimit.Every(1, time.Second))

	var refused *ratelimit.RefusedError
	err := client.Verify(background, "two", "tow")
	if !errors.As(err, &refused) || !slices.Equal(refused.Missing, []string{"fwe", "tow"}) {
		t.Fatal(err)
	}

	strict := ratelimittest.Start(t, "policies: {few: {algorithm: fixed_window, limit: 3, window: 1m}}").Client()
	strict.Expect(ratelimit.Every(1, time.Second))
	if err := strict.Verify(background, "few"); !errors.As(err, &refused) || refused.Code != "NOT_PERMITTED" {
		t.Fatal(err)
	}
}

func TestADisabledClientAllowsAndNeverConnects(t *testing.T) {
	t.Setenv("RATELIMIT_ENABLED", "0")
	client := ratelimit.New(ratelimit.WithSocket("/nowhere"))

	d, err := client.Check(background, "few", "k")
	if err != nil || !d.Allowed || d.Source != "disabled" || d.Of != "" {
		t.Fatal(d, err)
	}
	slot, d, err := client.Acquire(background, "one", "k")
	if err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	slot.Release()
}

func TestADaemonThatTakesOnlyShortRequestsKeepsItsConnection(t *testing.T) {
	client := ratelimittest.Start(t, "caps: {max_key: 100B, max_frame: 300B}"+configuration).Client()
	if err := client.Ping(background); err != nil {
		t.Fatal(err)
	}

	for length, want := range map[int]string{50: "", 200: "BAD_KEY", 400: "TOO_LARGE"} {
		_, err := client.Check(background, "few", strings.Repeat("k", length))
		var refused *ratelimit.RefusedError
		if errors.As(err, &refused); (err != nil) != (want != "") || (refused != nil && refused.Code != want) {
			t.Error(length, err)
		}
	}
	if stats := must[map[string]int64](t)(client.Stats(background)); stats["connections_closed_broken"] != 0 {
		t.Error(stats)
	}
}

func TestTheNameOfAnInlinePolicyStandsInItsAnswers(t *testing.T) {
	client := ratelimittest.Start(t, "inline: {allow: true}").Client()
	ctx := context.Background()
	named, err := ratelimit.Named(ratelimit.Every(1, time.Minute), "search")
	if err != nil {
		t.Fatal(err)
	}

	if d, err := client.Check(ctx, named, "k"); err != nil || !d.Allowed || d.Of != "search" {
		t.Fatal(d, err)
	}
	if d, err := client.Check(ctx, ratelimit.Every(1, time.Minute), "k"); err != nil || d.Allowed {
		t.Fatal("a name changes what counts together", d, err)
	}
	if d, err := client.Check(ctx, `{"algorithm":"fixed_window","limit":1,"window":"1m","name":"a b"}`, "k"); err == nil {
		t.Fatal(d)
	}
}

func TestAPanicOfTheHookGivesBackWhatWasGranted(t *testing.T) {
	daemon := ratelimittest.Start(t, configuration)
	client := daemon.Client(ratelimit.WithOnDecision(func(ratelimit.Event) { panic("as the test wants it") }))
	ctx := context.Background()
	for _, ask := range []func(){
		func() { client.Acquire(ctx, "one", "k") },
		func() { client.Reserve(ctx, "few", "k", 2) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the hook did not panic")
				}
			}()
			ask()
		}()
	}

	slots, err := client.Stats(ctx)
	left, peekErr := client.Peek(ctx, "few", "k")
	if err != nil || peekErr != nil || slots["slots"] != 0 || left.Remaining != 3 {
		t.Error(slots["slots"], left.Remaining, err, peekErr)
	}
}
