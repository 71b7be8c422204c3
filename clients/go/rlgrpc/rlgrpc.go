// Package rlgrpc limits gRPC services.
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(rlgrpc.Unary(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
//		grpc.ChainStreamInterceptor(rlgrpc.Stream(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
//	)
//
// A denied call ends with ResourceExhausted and the details RetryInfo and QuotaFailure. Where the daemon does not
// answer, OnError decides: ratelimit.Deny ends the call with Unavailable. So ends a call without a key, unless
// ratelimit.Allow is written at this limit. A mistake in the program or the configuration ends it with Internal and is
// logged. Health checks, the methods of grpc.health.v1, are not limited unless LimitHealth says so.
package rlgrpc

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	ratelimit "github.com/ratelimitd/ratelimitd/clients/go"
	"github.com/ratelimitd/ratelimitd/clients/go/gate"
)

// A Call is what an interceptor knows of a call when it begins.
type Call struct {
	Context context.Context
	Method  string // "/package.Service/Method"
	Request any    // nil for streams
}

// ErrNoLimit, returned by a key function, lets the call pass this limit. Nothing else does, but Skip.
var ErrNoLimit = gate.ErrNoLimit

type limit = gate.Limit[Call, error]

// An Option of Unary and Stream. Those of one limit are about the limit that And has begun last, or the first one.
type Option func(*settings)

type settings struct {
	limits []limit
	health bool // is limited, too
}

func (s *settings) last() *limit { return &s.limits[len(s.limits)-1] }

func fresh() limit { return limit{Key: peerKey} }

// Policy names the policy of the daemon's configuration. A limit such as "10/5s" is what Every makes of it.
func Policy(name string) Option { return func(s *settings) { s.last().Policy = name } }

// PolicyOf chooses the policy by the call: a name, or settings as ratelimit.Every and ratelimit.Inline write them. ErrNoLimit
// lets the call pass this limit. Of settings, the limit may move: its counter stays.
func PolicyOf(policy func(Call) (string, error)) Option {
	return func(s *settings) { s.last().PolicyOf = policy }
}

// Name is what details and logs call a limit that is written here, in place of inline-224b... It does not change what counts
// together.
func Name(name string) Option {
	if !ratelimit.IsPolicyName(name) {
		panic(&ratelimit.RefusedError{Code: ratelimit.BadArgument,
			Message: "a name has letters, digits, '.', '_' and '-': not " + strconv.Quote(name)})
	}
	return func(s *settings) { s.last().Name = name }
}

// LimitHealth limits the methods of grpc.health.v1 as all others. Without it they are left alone: a probe that is denied
// restarts the service.
func LimitHealth() Option { return func(s *settings) { s.health = true } }

// Every is a limit that is written here: n calls in each window, which begins with the first one. The daemon must allow
// it (inline: {allow: true}). It counts by method and key.
func Every(n int64, window time.Duration) Option { return Policy(ratelimit.Every(n, window)) }

// Inline is a limit that is written here, with the settings of ratelimitd.yaml(5). It counts by method and key.
func Inline(settings map[string]any) Option { return Policy(ratelimit.Inline(settings)) }

// Key chooses whose calls are counted together; without it ByPeer.
func Key(key func(Call) (string, error)) Option { return func(s *settings) { s.last().Key = key } }

// ByPeer counts by the address of the connection, IPv6 by its first 64 bits. A peer without an address (a Unix socket)
// is a mistake.
func ByPeer(s *settings) { s.last().Key = peerKey }

// ByMetadata counts by a value that a layer which you trust sets. A call without it, or with an empty one, has no key.
func ByMetadata(name string) Option {
	return Key(func(call Call) (string, error) {
		values := metadata.ValueFromIncomingContext(call.Context, name)
		if len(values) == 0 {
			return "", nil
		}
		return values[len(values)-1], nil
	})
}

// Cost is what a call costs; without it 1.
func Cost(cost func(Call) int64) Option { return func(s *settings) { s.last().Cost = cost } }

// Skip lets calls pass for which the function returns true, such as health checks.
func Skip(skip func(Call) bool) Option { return func(s *settings) { s.last().Skip = skip } }

// OnError decides what happens where the daemon does not answer; without it the client's WithOnError.
func OnError(onError ratelimit.OnError) Option {
	return func(s *settings) { s.last().OnError = onError }
}

// ChargeWhen charges only the calls for which the function returns true when they have ended.
func ChargeWhen(when func(call Call, err error) bool) Option {
	return func(s *settings) { s.last().ChargeWhen = when }
}

// ChargeUnits charges as many units as the function returns when the call has ended. The cost is reserved in the meantime.
// Units beyond it are charged as far as they are left, or all of them if the policy has debt.
func ChargeUnits(units func(call Call, err error) int64) Option {
	return func(s *settings) { s.last().ChargeUnits = units }
}

// Slot is for policies with a concurrency limit: the call holds a slot until it has ended.
func Slot() Option { return func(s *settings) { s.last().Slot = true } }

// PerMethod has a named policy count each method by itself, as limits that are written here do.
func PerMethod() Option { return func(s *settings) { s.last().PerEndpoint = true } }

// Enabled(false) switches the limit off.
func Enabled(enabled bool) Option { return func(s *settings) { s.last().Off = !enabled } }

// And adds another limit, with options of its own. All of them are charged together or not at all.
func And(options ...Option) Option {
	return func(s *settings) {
		s.limits = append(s.limits, fresh())
		for _, option := range options {
			option(s)
		}
	}
}

// A guard is what Unary and Stream have in common.
type guard struct {
	gate   *gate.Gate[Call, error]
	health bool
}

func newGuard(client *ratelimit.Client, options []Option) guard {
	chosen := settings{limits: []limit{fresh()}}
	for _, option := range options {
		option(&chosen)
	}
	place := gate.Place[Call]{Package: "rlgrpc",
		Endpoint: func(call Call) string { return call.Method },
		Same:     func(outer, inner Call) bool { return outer.Method == inner.Method },
	}
	return guard{gate.New(client, place, chosen.limits...), chosen.health}
}

// passes reports whether the call is not for this guard.
func (g guard) passes(method string) bool {
	return !g.health && strings.HasPrefix(method, "/grpc.health.v1.")
}

// DecisionOf returns, within a handler, the decision about its call. Of several limits it is the one with least left. False:
// no decision was made.
func DecisionOf(ctx context.Context) (ratelimit.Decision, bool) {
	return gate.DecisionOf[Call, error](ctx)
}

// Unary limits calls with one request and one answer.
func Unary(client *ratelimit.Client, options ...Option) grpc.UnaryServerInterceptor {
	g := newGuard(client, options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (answer any, err error) {
		if g.passes(info.FullMethod) {
			return handler(ctx, request)
		}
		entry := g.gate.Enter(ctx, Call{Context: ctx, Method: info.FullMethod, Request: request})
		if err := verdict(entry); err != nil {
			return nil, err
		}

		err = status.Error(codes.Unknown, "panic")
		defer func() { entry.Leave(err) }()
		answer, err = handler(entry.Into(ctx), request)
		return answer, err
	}
}

// Stream limits the beginning of streams. A Slot is held until the stream has ended.
func Stream(client *ratelimit.Client, options ...Option) grpc.StreamServerInterceptor {
	g := newGuard(client, options)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) (err error) {
		if g.passes(info.FullMethod) {
			return handler(server, stream)
		}
		ctx := stream.Context()
		entry := g.gate.Enter(ctx, Call{Context: ctx, Method: info.FullMethod})
		if err := verdict(entry); err != nil {
			return err
		}

		err = status.Error(codes.Unknown, "panic")
		defer func() { entry.Leave(err) }()
		err = handler(server, decided{stream, entry.Into(ctx)})
		return err
	}
}

// decided is a stream whose context has the decision.
type decided struct {
	grpc.ServerStream
	ctx context.Context
}

func (d decided) Context() context.Context { return d.ctx }

// verdict is nil for a call that may go on.
func verdict(entry *gate.Entry[Call, error]) error {
	switch entry.Verdict {
	case gate.Denied:
		return denied(entry.Decision, entry.Slot)
	case gate.Closed:
		return detailed(codes.Unavailable, "temporary reduced capacity", retryIn(time.Second))
	case gate.Wrong:
		entry.LogWrong()
		return status.Error(codes.Internal, "the rate limiter is set up wrongly")
	case gate.Gone:
		return status.FromContextError(entry.Err).Err()
	}
	return nil
}

func denied(decision ratelimit.Decision, slot bool) error {
	bound := decision.BoundBy
	if bound == "" {
		bound = decision.Of
	}
	details := []protoadapt.MessageV1{&errdetails.QuotaFailure{
		Violations: []*errdetails.QuotaFailure_Violation{{Subject: bound, Description: "too many calls"}}}}
	if decision.RetryAfterMS >= 0 && !slot {
		details = append(details, retryIn(decision.RetryAfter()))
	}
	return detailed(codes.ResourceExhausted, "too many calls", details...)
}

func retryIn(delay time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}
}

func detailed(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	plain := status.New(code, message)
	if with, err := plain.WithDetails(details...); err == nil {
		return with.Err()
	}
	return plain.Err()
}

func peerKey(call Call) (string, error) {
	from, ok := peer.FromContext(call.Context)
	if ok {
		if address, ok := gate.ParseAddress(from.Addr.String()); ok {
			return gate.AddressKey(address, 64), nil
		}
	}
	return "", &ratelimit.RefusedError{Code: ratelimit.BadArgument,
		Message: "the peer has no address (a Unix socket?): use another key than ByPeer"}
}
