// Package ratelimit asks ratelimitd whether something may happen now.
//
//	client := ratelimit.New()
//	defer client.Close()
//
//	d, err := client.Check(ctx, "login", user)
//	switch {
//	case err != nil: // no answer: errors.As finds *UnavailableError or *RefusedError
//	case !d.Allowed: // the answer is no: try again in d.RetryAfter()
//	}
//
// A Client connects when it is first asked, and again after a connection was lost. All goroutines of a process share
// one Client and its one connection: their requests are gathered into few writes, and answers may overtake each other.
//
// A call ends within the client's timeout (250 ms unless WithTimeout sets another, connecting included), and earlier
// where its context ends earlier. A call that may have been charged is not sent again, unless it has the option Resend.
//
// Wherever a method takes the name of a policy, it also takes settings in braces, as Every and Inline write them. The
// daemon must allow that: inline: {allow: true}.
package ratelimit

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/ratelimitd/ratelimitd/clients/go/internal/names"
	"github.com/ratelimitd/ratelimitd/clients/go/internal/service"
)

// DefaultSocket is where the daemon listens when neither WithSocket nor $RATELIMIT_SOCKET names another path.
const DefaultSocket = "/run/ratelimitd/ratelimitd.sock"

// DefaultTimeout is the time of one call, connecting included.
const DefaultTimeout = 250 * time.Millisecond

// pathMax is what a Unix socket's address has space for.
const pathMax = 107

// After a connection could not be made, calls fail at once for this time, which doubles with each further failure.
const (
	backoffFirst = 10 * time.Millisecond
	backoffMax   = 250 * time.Millisecond
)

// graceForAnswer is how long a call waits beyond its deadline for an answer that has arrived but is not read yet.
const graceForAnswer = 10 * time.Millisecond

// A Client is safe for use by any number of goroutines. Create it with New.
type Client struct {
	settings settings
	breaker  breaker
	counters counters
	denials  denials
	lastLog  atomic.Int64 // when a failure was last logged, in nanoseconds since 1970

	logService sync.Once
	endpoints  names.Registry
	keepers    keepers

	mu       sync.Mutex
	closed   bool
	conn     *connection
	backoff  time.Duration // 0: the last attempt to connect succeeded
	notUntil time.Time     // no attempt before this moment
	expected []string      // policies that Verify looks for
}

// Transport answers calls in place of a daemon: packed params in, packed result out, or an *UnavailableError or a
// *RefusedError. The package ratelimittest has one.
type Transport func(ctx context.Context, method string, params []byte) ([]byte, error)

type settings struct {
	socket     string
	transport  Transport
	timeout    time.Duration
	onError    OnError
	onDecision func(Event)
	onRequest  func(context.Context, Decision)
	onSlotLost func(*Slot)
	logger     *slog.Logger
	enabled    bool
	remember   time.Duration
	service    *string
}

// A ClientOption changes a setting of New.
type ClientOption func(*settings)

// WithSocket names the daemon's socket. Without it the path is $RATELIMIT_SOCKET, or DefaultSocket if that is empty.
func WithSocket(path string) ClientOption {
	return func(s *settings) { s.socket = path }
}

// WithTransport has calls answered by a function. The client makes no connection then.
func WithTransport(transport Transport) ClientOption {
	return func(s *settings) { s.transport = transport }
}

// WithTimeout sets the time of each call, connecting included; 0 is DefaultTimeout.
func WithTimeout(timeout time.Duration) ClientOption {
	return func(s *settings) {
		if s.timeout = timeout; timeout <= 0 {
			s.timeout = DefaultTimeout
		}
	}
}

// WithOnError sets what middleware does with a request that the daemon did not answer. The default is Allow. The
// methods of Client return the error in any case.
func WithOnError(onError OnError) ClientOption {
	return func(s *settings) { s.onError = onError }
}

// WithOnDecision has a function called at the end of each call that decides. It must be quick: the call waits for it.
func WithOnDecision(hook func(Event)) ClientOption {
	return func(s *settings) { s.onDecision = hook }
}

// WithOnRequest has a function called for each request that middleware has a decision about, with the request's context and the
// decision that DecisionOf gives. It must be quick: the request waits for it.
func WithOnRequest(hook func(ctx context.Context, decision Decision)) ClientOption {
	return func(s *settings) { s.onRequest = hook }
}

// WithOnSlotLost has a function called when a slot ended because its connection did. See also Slot.Lost.
func WithOnSlotLost(hook func(*Slot)) ClientOption {
	return func(s *settings) { s.onSlotLost = hook }
}

// WithLogger replaces slog.Default() for the client's own lines, and for those of its middleware about requests without a
// decision: at most one in ten seconds.
func WithLogger(logger *slog.Logger) ClientOption {
	return func(s *settings) { s.logger = logger }
}

// WithEnabled(false) answers every call that decides with an allowed decision of source "disabled", and never
// connects. $RATELIMIT_ENABLED=0 does the same for every client of the process that does not use this option.
func WithEnabled(enabled bool) ClientOption {
	return func(s *settings) { s.enabled = enabled }
}

// WithService names the program in the keys of limits that are written at an endpoint: SERVICE|ENDPOINT|KEY. "": the key
// begins with the endpoint. Without this option it is $RATELIMIT_SERVICE, else $OTEL_SERVICE_NAME, else the path of the
// program's main module.
func WithService(name string) ClientOption {
	return func(s *settings) { s.service = &name }
}

// WithRememberDenials has the client repeat a denial by itself, with source "deny_cache", for at most this time and its
// retry time: a flood from this process does not reach the daemon. Off by default. The daemon's counters do not see these
// checks, so it is not for policies with count_denied; Verify logs which have it. New panics if it is below 0.
func WithRememberDenials(longest time.Duration) ClientOption {
	return func(s *settings) { s.remember = longest }
}

// New returns a client. It does not connect: the first call does, so the daemon may start later. It panics with a
// *RefusedError if no Unix socket can have such a path.
func New(options ...ClientOption) *Client {
	path := os.Getenv("RATELIMIT_SOCKET")
	if path == "" {
		path = DefaultSocket
	}

	client := &Client{settings: settings{
		socket:  path,
		timeout: DefaultTimeout,
		onError: Allow,
		enabled: os.Getenv("RATELIMIT_ENABLED") != "0",
	}}
	for _, option := range options {
		option(&client.settings)
	}
	if n := len(client.settings.socket); n == 0 || n > pathMax {
		panic(badArgument("the path of a Unix socket has 1 to %d bytes: %q", pathMax, client.settings.socket))
	}

	if client.settings.remember < 0 {
		panic(badArgument("denials are remembered for at least 0, not for %s", client.settings.remember))
	}
	if !client.settings.enabled {
		by := "WithEnabled(false)"
		if os.Getenv("RATELIMIT_ENABLED") == "0" {
			by = "RATELIMIT_ENABLED=0"
		}
		client.Logger().Warn(by + ": rate limits are switched off, every request passes without asking")
	}
	client.denials = denials{lasts: client.settings.remember, found: map[string]*list.Element{}}

	return client
}

// Close ends the connection, the slots that it holds and the calls that wait. Later calls fail with ErrClosed. It
// returns when the client's goroutines have ended.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()

	if conn != nil {
		conn.end(&UnavailableError{Kind: KindCancelled, Err: ErrClosed})
		<-conn.ended
	}
	return nil
}

// Enabled reports whether the client asks the daemon at all. See WithEnabled.
func (c *Client) Enabled() bool { return c.settings.enabled }

// Service is the name of WithService. It is logged once, when it is first asked for.
func (c *Client) Service() string {
	name, from := service.Of(c.settings.service, os.LookupEnv, service.MainModule())
	c.logService.Do(func() {
		if service.IsCommon(name) {
			c.Logger().Warn("limits that are written at an endpoint share their counters with every service of this name on"+
				" one daemon: set RATELIMIT_SERVICE or WithService", "service", name, "from", from)
			return
		}
		c.Logger().Info("limits that are written at an endpoint count by this service", "service", name, "from", from)
	})
	return name
}

// Endpoints has the names of endpoints that limits count by. It is for middleware.
func (c *Client) Endpoints() *names.Registry { return &c.endpoints }

// Has reports whether the daemon has listed a feature in its answer to hello on the present connection.
func (c *Client) Has(feature string) bool {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	return conn != nil && conn.has(feature)
}

// ReportRequest calls the hook of WithOnRequest. It is for middleware.
func (c *Client) ReportRequest(ctx context.Context, decision Decision) {
	if c.settings.onRequest != nil {
		c.settings.onRequest(ctx, decision)
	}
}

// OnError returns what WithOnError has set: what middleware does unless a limit has its own.
func (c *Client) OnError() OnError { return c.settings.onError }

// Logger is where the client and its middleware log.
func (c *Client) Logger() *slog.Logger {
	if c.settings.logger != nil {
		return c.settings.logger
	}
	return slog.Default()
}

// ask sends a call, waits for its end and returns the packed result. The error is an *UnavailableError or a
// *RefusedError, and is counted.
func (c *Client) ask(ctx context.Context, question *call, timeout time.Duration) (*connection, []byte, error) {
	conn, err := c.tryAsk(ctx, question, timeout)
	if err != nil {
		c.count(err)
		return conn, nil, err
	}
	return conn, question.result, nil
}

func (c *Client) tryAsk(ctx context.Context, question *call, timeout time.Duration) (conn *connection, err error) {
	if timeout <= 0 {
		timeout = c.settings.timeout
	}
	if question.givesBack && ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // as in a handler whose client has left: what was used is reported all the same
	}
	if err := ctx.Err(); err != nil {
		return nil, fromContext(err, false)
	}
	if c.settings.transport != nil {
		method, params, _ := msgp.ReadStringBytes(question.body)
		question.result, err = c.settings.transport(ctx, method, params)
		return nil, err
	}
	admitted, probe := c.breaker.admit(time.Now())
	if !admitted && !question.givesBack {
		return nil, &UnavailableError{Kind: KindBreaker,
			Message: "the last calls timed out; the next try is within a second"}
	}

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	conn, err = c.exchange(ctx, question, timer)

	var unavailable *UnavailableError
	switch errors.As(err, &unavailable); {
	case conn == nil: // it did not come that far
		c.breaker.undecided(probe)
	case unavailable == nil || unavailable.Code != "":
		c.breaker.answered()
	case unavailable.Kind == KindTimeout:
		c.breaker.timedOut(time.Now(), probe)
	default:
		c.breaker.undecided(probe)
	}
	return conn, err
}

// exchange sends the call on the connection, and once more on a new one where the first ended before the call had left,
// or where the call may be repeated. Once a first attempt went out it may have been charged, whatever ends the second.
func (c *Client) exchange(ctx context.Context, question *call, timer *time.Timer) (last *connection, failure error) {
	wentOut := false
	defer func() {
		var unavailable *UnavailableError
		if wentOut && errors.As(failure, &unavailable) {
			unavailable.MaybeCharged = true
		}
	}()

	for attempts := 1; ; attempts++ {
		conn, err := c.connect()
		if err != nil {
			return nil, err
		}
		if err := conn.fits(ctx, question, timer); err != nil {
			return nil, err
		}
		switch err := conn.send(question); {
		case errors.Is(err, errEnded) && attempts < 3:
			continue
		case errors.Is(err, errEnded):
			return nil, &UnavailableError{Kind: KindUnreachable, Err: err}
		case err != nil:
			return nil, err
		}

		err = c.await(ctx, conn, question, timer)
		var unavailable *UnavailableError
		lost := errors.As(err, &unavailable) && unavailable.Kind == KindLost
		if !lost || attempts >= 2 || (unavailable.MaybeCharged && !question.repeatable) {
			if lost && !unavailable.MaybeCharged {
				unavailable.Kind = KindUnreachable // it never left
			}
			return conn, err
		}
		wentOut = wentOut || unavailable.MaybeCharged
		question.reset()
	}
}

// await waits for the end of a call that was given to a connection.
func (c *Client) await(ctx context.Context, conn *connection, question *call, timer *time.Timer) error {
	var ended error
	select {
	case <-question.done:
		return question.err
	case <-ctx.Done():
		ended = ctx.Err()
	case <-timer.C:
		ended = context.DeadlineExceeded
	}

	// The whole process may have stood still: an answer that lies in the socket is in time.
	if errors.Is(ended, context.DeadlineExceeded) && conn.hasUnread() {
		grace := time.NewTimer(graceForAnswer)
		defer grace.Stop()
		select {
		case <-question.done:
		case <-grace.C:
		}
	}

	sent, inTime := conn.abandon(question)
	if inTime {
		<-question.done
		return question.err
	}
	return fromContext(ended, sent)
}

// connect returns the present connection, or begins one. Calls may be given to it at once.
func (c *Client) connect() (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.closed {
		return nil, &UnavailableError{Kind: KindCancelled, Err: ErrClosed}
	}
	if c.conn != nil && c.conn.usable() {
		return c.conn, nil
	}
	if wait := time.Until(c.notUntil); wait > 0 {
		return nil, &UnavailableError{Kind: KindUnreachable,
			Message: "the last attempt to connect failed; the next one is in " + wait.Round(time.Millisecond).String()}
	}

	c.conn = newConnection(c.dial, c.dialled, c.settings.onSlotLost)
	return c.conn, nil
}

func (c *Client) dial() (net.Conn, error) {
	stream, err := net.DialTimeout("unix", c.settings.socket, c.settings.timeout)
	if err == nil {
		return stream, nil
	}

	message := "no daemon"
	if errors.Is(err, syscall.EAGAIN) {
		message = "the daemon's backlog is full"
	}
	return nil, &UnavailableError{Kind: KindUnreachable, Message: message, Err: err}
}

func (c *Client) dialled(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if err == nil {
		c.backoff = 0
		return
	}
	c.backoff = min(max(2*c.backoff, backoffFirst), backoffMax)
	c.notUntil = time.Now().Add(jittered(c.backoff))
}
