package ratelimit_test

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
)

// A scripted daemon: each request but hello goes to `asked`; the test answers.
type scripted struct {
	t      *testing.T
	socket string
	conn   net.Conn
	asked  chan request
}

type request struct {
	id     uint64
	method string
}

func script(t *testing.T) *scripted {
	s := &scripted{t: t, socket: filepath.Join(t.TempDir(), "s"), asked: make(chan request)}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })

	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		s.conn = conn
		reader := msgp.NewReader(conn)
		for {
			value, err := reader.ReadIntf()
			if err != nil {
				return
			}
			message := value.([]any)
			one := request{method: message[2].(string)}
			switch id := message[1].(type) {
			case int64:
				one.id = uint64(id)
			case uint64:
				one.id = id
			}
			if one.method != "hello" {
				s.asked <- one
			}
		}
	}()
	return s
}

func (s *scripted) expect(method string) uint64 {
	s.t.Helper()
	got := <-s.asked
	if got.method != method {
		s.t.Fatalf("%s, not %s", got.method, method)
	}
	return got.id
}

func (s *scripted) answer(id uint64, failure, result any) {
	s.t.Helper()
	packed, err := msgp.AppendIntf(nil, []any{1, id, failure, result})
	if err == nil {
		_, err = s.conn.Write(packed)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestAReleaseIsRepeatedWhileTheDaemonIsOverloaded(t *testing.T) {
	daemon := script(t)
	client := ratelimit.New(ratelimit.WithSocket(daemon.socket), ratelimit.WithTimeout(time.Minute))
	defer client.Close()

	errs := make(chan error)
	go func() {
		slot, _, err := client.Acquire(background, "one", "k")
		if err == nil {
			_, err = slot.Release()
		}
		errs <- err
	}()
	daemon.answer(daemon.expect("acquire"), nil, map[string]any{"allowed": true, "slot": "s"})
	for range 2 {
		daemon.answer(daemon.expect("release"), "OVERLOADED: too much", nil)
	}
	daemon.answer(daemon.expect("release"), nil, map[string]any{"released": true})
	if err := <-errs; err == nil {
		t.Fatal("the first release was not done")
	}
}

func TestAnOpenBreakerLetsThroughWhatGivesBack(t *testing.T) {
	daemon := script(t)
	client := ratelimit.New(ratelimit.WithSocket(daemon.socket), ratelimit.WithTimeout(time.Minute))
	defer client.Close()
	kind := func(err error) ratelimit.Kind {
		var unavailable *ratelimit.UnavailableError
		errors.As(err, &unavailable)
		return unavailable.Kind
	}

	reserved := make(chan *ratelimit.Reservation)
	go func() {
		reservation, _, _ := client.Reserve(background, "llm", "k", 5)
		reserved <- reservation
	}()
	daemon.answer(daemon.expect("reserve"), nil, map[string]any{"allowed": true, "reservation": "token"})
	reservation := <-reserved
	go func() {
		for range 3 {
			daemon.expect("check")
		}
	}()
	for range 3 {
		_, err := client.Check(background, "api", "k", ratelimit.Timeout(250*time.Millisecond))
		if kind(err) != ratelimit.KindTimeout {
			t.Fatal(err)
		}
	}
	if _, err := client.Check(background, "api", "k"); kind(err) != ratelimit.KindBreaker {
		t.Fatal(err)
	}

	ended := make(chan error)
	go func() {
		_, err := reservation.Cancel(background)
		ended <- err
	}()
	daemon.answer(daemon.expect("cancel"), nil, map[string]any{"allowed": true, "refunded": 5})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
