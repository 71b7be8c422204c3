// Package rlgrpc limits gRPC services.
//
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(rlgrpc.Unary(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
//		grpc.ChainStreamInterceptor(rlgrpc.Stream(client, rlgrpc.Policy("api"), rlgrpc.ByPeer)),
//	)
//
// A denied call ends with ResourceExhausted and the details RetryInfo and QuotaFailure. Where the daemon does not
// answer, OnError decides: ratelimit.Deny ends the call with Unavailable. A mistake in the program or the configuration
// ends it with Internal and is logged.
package rlgrpc

import (
	"context"
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

// ErrNoLimit, returned by a key function, lets the call pass this limit.
var ErrNoLimit = gate.ErrNoLimit

type limit = gate.Limit[Call, error]

// An Option of Unary and Stream. Those of one limit are about the limit that And has begun last, or the first one.
type Option func(*settings)

type settings struct{ limits []limit }

func (s *settings) last() *limit { return &s.limits[len(s.limits)-1] }

func fresh() limit { return limit{Key: peerKey} }

// Policy names the policy of the daemon's configuration. A limit such as "10/5s" is what Every makes of it.
func Policy(name string) Option { return func(s *settings) { s.last().Policy = name } }

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

// ByMetadata counts by a value that a layer which you trust sets. A call without it is not limited by it; an empty
// value is a mistake.
func ByMetadata(name string) Option {
	return Key(func(call Call) (string, error) {
		values := metadata.ValueFromIncomingContext(call.Context, name)
		if len(values) == 0 {
			return "", ErrNoLimit
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

func newGate(client *ratelimit.Client, options []Option) *gate.Gate[Call, error] {
	chosen := settings{limits: []limit{fresh()}}
	for _, option := range options {
		option(&chosen)
	}
	return gate.New(client, func(call Call) string { return call.Method }, chosen.limits...)
}

// Unary limits calls with one request and one answer.
func Unary(client *ratelimit.Client, options ...Option) grpc.UnaryServerInterceptor {
	g := newGate(client, options)
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (answer any, err error) {
		entry := g.Enter(ctx, Call{Context: ctx, Method: info.FullMethod, Request: request})
		if err := verdict(client, entry); err != nil {
			return nil, err
		}

		err = status.Error(codes.Unknown, "panic")
		defer func() { entry.Leave(err) }()
		answer, err = handler(ctx, request)
		return answer, err
	}
}

// Stream limits the beginning of streams. A Slot is held until the stream has ended.
func Stream(client *ratelimit.Client, options ...Option) grpc.StreamServerInterceptor {
	g := newGate(client, options)
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
		handler grpc.StreamHandler) (err error) {
		entry := g.Enter(stream.Context(), Call{Context: stream.Context(), Method: info.FullMethod})
		if err := verdict(client, entry); err != nil {
			return err
		}

		err = status.Error(codes.Unknown, "panic")
		defer func() { entry.Leave(err) }()
		err = handler(server, stream)
		return err
	}
}

// verdict is nil for a call that may go on.
func verdict(client *ratelimit.Client, entry *gate.Entry[Call, error]) error {
	switch entry.Verdict {
	case gate.Denied:
		return denied(entry.Decision, entry.Slot)
	case gate.Closed:
		return detailed(codes.Unavailable, "the rate limiter does not answer", retryIn(time.Second))
	case gate.Wrong:
		client.Logger().Error("rlgrpc: the limit cannot be asked", "error", entry.Err)
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
