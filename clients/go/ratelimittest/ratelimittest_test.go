package ratelimittest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/ratelimittest"
)

var background = context.Background()

func TestAFakeAnswersAsItIsTold(t *testing.T) {
	fake := ratelimittest.NewFake()
	client := fake.Client()

	if d, err := client.Check(background, "login", "alice"); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	fake.Deny("login", 3000)
	d, err := client.Check(background, "login", "alice")
	if err != nil || d.Allowed || d.RetryAfter() != 3*time.Second {
		t.Fatal(d, err)
	}
	fake.Unavailable(ratelimit.KindTimeout)
	var unavailable *ratelimit.UnavailableError
	_, err = client.Check(background, "login", "alice")
	if !errors.As(err, &unavailable) || !unavailable.MaybeCharged {
		t.Fatal(err)
	}
	fake.AllowAll()
	items := []ratelimit.Item{ratelimit.Of("a", "k", ratelimit.Cost(2)), ratelimit.Of("b", "k")}
	if d, err := client.CheckAll(background, items); err != nil || d.Granted != 3 {
		t.Fatal(d, err)
	}

	login := ratelimittest.Call{Method: "check", Policy: "login", Key: "alice", Units: 1}
	want := []ratelimittest.Call{login, login, login, {Method: "check_all", Policy: "a", Key: "k", Units: 2},
		{Method: "check_all", Policy: "b", Key: "k", Units: 1}}
	if calls := fake.Calls(); !reflect.DeepEqual(calls, want) {
		t.Fatal(calls)
	}
}

func TestAFakeCountsSlots(t *testing.T) {
	fake := ratelimittest.NewFake()
	slot, _, err := fake.Client().Acquire(background, "one", "k")
	if err != nil || fake.HeldSlots() != 1 {
		t.Fatal(err, fake.HeldSlots())
	}
	if released, err := slot.Release(); !released || err != nil || fake.HeldSlots() != 0 {
		t.Fatal(released, err)
	}
}

func TestTheDaemonsClockMovesOnlyWhenTold(t *testing.T) {
	daemon := ratelimittest.Start(t, `
policies:
  one: {algorithm: fixed_window, limit: 1, window: 1h, start: first_hit}
`)
	client := daemon.Client()

	for _, want := range []bool{true, false} {
		d, err := client.Check(background, "one", "k")
		if err != nil || d.Allowed != want || d.ResetAfter() != time.Hour {
			t.Fatal(d, err)
		}
	}
	daemon.Advance(time.Hour)
	if d, err := client.Check(background, "one", "k"); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
}
