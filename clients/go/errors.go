package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind is the reason why there was no answer.
type Kind string

// The kinds of an UnavailableError.
const (
	KindUnreachable      Kind = "unreachable"       // never sent: no daemon, or its backlog is full
	KindTimeout          Kind = "timeout"           // no answer in time
	KindLost             Kind = "lost"              // the connection ended before the answer
	KindProtocol         Kind = "protocol"          // the answer was not valid
	KindOverloaded       Kind = "overloaded"        // the daemon, or this client, has too much in flight; not charged
	KindShuttingDown     Kind = "shutting_down"     // the daemon is stopping; not charged
	KindStoreUnavailable Kind = "store_unavailable" // only the store could answer, and did not
	KindBreaker          Kind = "breaker"           // not sent, because the last calls timed out
	KindCancelled        Kind = "cancelled"         // the caller's context was cancelled, or the client closed
)

// kinds are all of them, in the order of Counters.
var kinds = []Kind{KindUnreachable, KindTimeout, KindLost, KindProtocol, KindOverloaded, KindShuttingDown,
	KindStoreUnavailable, KindBreaker, KindCancelled}

// ErrClosed is wrapped by the errors of calls on a closed Client, and of those that waited when it was closed.
var ErrClosed = errors.New("the client is closed")

// UnavailableError: there was no answer. The program may go on by a rule of its own. It wraps context.DeadlineExceeded
// or context.Canceled where the call's time or context ended, and the error of the connection where there is one.
type UnavailableError struct {
	Kind         Kind
	MaybeCharged bool   // the request may have been charged
	Code         string // the daemon's code, such as "OVERLOADED"; usually empty
	Message      string // for people; may be empty
	Err          error  // may be nil
}

func (e *UnavailableError) Error() string {
	text := "ratelimit: " + string(e.Kind)
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.MaybeCharged {
		text += " (it may have been charged)"
	}
	return text
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// RefusedError: the program or the configuration is wrong, such as a policy that does not exist. Nothing was charged.
// Never treat it like "no limit".
type RefusedError struct {
	Code    string   // such as "UNKNOWN_POLICY" or "BAD_KEY"
	Message string   // for people
	Missing []string // of Verify with UNKNOWN_POLICY: the policies that are not configured
}

func (e *RefusedError) Error() string { return fmt.Sprintf("ratelimit: %s: %s", e.Code, e.Message) }

// BadArgument is the code of a RefusedError that comes from the client itself: nothing was sent.
const BadArgument = "BAD_ARGUMENT"

// OnError decides about a request that the daemon did not answer: true lets it through. It runs in the request's
// goroutine.
type OnError func(ctx context.Context, err *UnavailableError) bool

// Allow lets a request through that the daemon did not answer.
func Allow(context.Context, *UnavailableError) bool { return true }

// Deny refuses a request that the daemon did not answer. Use it where a limit protects a login.
func Deny(context.Context, *UnavailableError) bool { return false }

func fromContext(err error, sent bool) *UnavailableError {
	if errors.Is(err, context.DeadlineExceeded) {
		message := "no answer in time"
		if !sent {
			message = "the request did not leave in time"
		}
		return &UnavailableError{Kind: KindTimeout, MaybeCharged: sent, Message: message, Err: context.DeadlineExceeded}
	}
	return &UnavailableError{Kind: KindCancelled, MaybeCharged: sent, Err: err}
}

func brokenAnswer(format string, values ...any) *UnavailableError {
	return &UnavailableError{Kind: KindProtocol, MaybeCharged: true, Message: fmt.Sprintf(format, values...)}
}

// fromDaemon reads the text of an error answer, "CODE: message".
func fromDaemon(text string) error {
	code, message, _ := strings.Cut(text, ": ")
	switch code {
	case "OVERLOADED":
		return &UnavailableError{Kind: KindOverloaded, Code: code, Message: message}
	case "SHUTTING_DOWN":
		return &UnavailableError{Kind: KindShuttingDown, Code: code, Message: message}
	case "STORE_UNAVAILABLE":
		return &UnavailableError{Kind: KindStoreUnavailable, MaybeCharged: true, Code: code, Message: message}
	}
	return &RefusedError{Code: code, Message: message}
}

func isKind(err error, kind Kind) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.Kind == kind
}
